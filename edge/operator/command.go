package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edge-rt/edge-rt/edge/episode"
	"github.com/edge-rt/edge-rt/edge/event"
	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/record"
)

// The words of edge-rt ctl. Package episode defines the words for episodes.
const (
	Pause   = "pause"
	Resume  = "resume"
	Correct = "correct"
	Reset   = "reset"
	Task    = "task" // followed by the new task
	Unload  = "unload"
	Save    = "save"
	Stop    = "stop"
	Release = "release"
	query   = "status"
)

// Command is one word of edge-rt ctl, one button of the page, and one key of the terminal.
type Command struct {
	Word   string     `json:"word"`
	Number event.Word `json:"-"`               // number of the command in records
	Help   string     `json:"-"`               // effect of the command, for --help
	Label  string     `json:"label,omitempty"` // text of the button; empty: no button, or a form of its own
	Text   string     `json:"text,omitempty"`  // name of the argument; empty: no argument
	May    bool       `json:"-"`               // the argument is optional
	Given  string     `json:"given,omitempty"` // argument of this button
	Ask    string     `json:"ask,omitempty"`   // question of the page before the command; empty: no question
	Keys   []string   `json:"-"`               // keys of the terminal
}

// Commands lists all commands. A new entry becomes a word of edge-rt ctl, a line of --help and a button on the page.
// Each source of an arm's motion has its own Actions, which carry the commands out.
var Commands = []Command{
	{
		Word:   Pause,
		Number: event.WordPause,
		Label:  "Pause",
		Help:   "hold and keep the queue",
		Keys:   []string{"space"},
	},
	{
		Word:   Resume,
		Number: event.WordResume,
		Label:  "Resume",
		Help:   "go on; after a correction the policy has the arm again",
	},
	{
		Word:   Correct,
		Number: event.WordCorrect,
		Label:  "Take over",
		Text:   "PART",
		May:    true,
		Ask: "Take the arm over with the leader? Hold the leader: it goes limp at the follower's pose, and then " +
			"the follower follows it.",
		Help: "a person takes the arm over with the leader of --leader: hold the leader, it goes limp at the " +
			"follower's pose; PART is for one of several arms",
		Keys: []string{"tab"},
	},
	{Word: Reset, Number: event.WordReset, Label: "New episode", Help: "new episode, the queue is dropped"},
	{
		Word:   Task,
		Number: event.WordTask,
		Text:   "TEXT",
		Help:   "new episode with another task, for policies that read it",
	},
	{
		Word:   episode.Start,
		Number: event.WordStart,
		Label:  "Start episode",
		Text:   "TASK",
		May:    true,
		Help:   "begin an episode, with another task if one is given; needs --record all",
		Keys:   []string{"right", "n"},
	},
	{
		Word:   record.Success,
		Number: event.WordSuccess,
		Label:  "Success",
		Help:   "end the episode as a success",
		Keys:   []string{"s"},
	},
	{
		Word:   record.Failure,
		Number: event.WordFailure,
		Label:  "Failure",
		Help:   "end the episode as a failure",
		Keys:   []string{"f"},
	},
	{
		Word:   record.Discard,
		Number: event.WordDiscard,
		Label:  "Discard",
		Help:   "end the episode, and leave it out of a data set",
		Keys:   []string{"d"},
	},
	{
		Word:   record.Rerecord,
		Number: event.WordRerecord,
		Label:  "Rerecord",
		Help:   "as discard, and the next episode takes its place",
		Keys:   []string{"left", "r"},
	},
	{
		Word:   Unload,
		Number: event.WordUnload,
		Label:  "Take load off",
		Text:   "JOINT",
		May:    true,
		Help: "take the load off an overloaded joint, or all: its goal is where it is, and its motor forgets the " +
			"overload",
	},
	{
		Word:   Save,
		Number: event.WordSave,
		Label:  "Save the record",
		Help:   "write the memory of --record ring to disk",
	},
	{
		Word:   Stop,
		Number: event.WordStop,
		Label:  "Stop",
		Ask:    "End the run? The arm is left as --on-exit selects, and the program ends.",
		Help:   "end the run as Ctrl-C does",
		Keys:   []string{"esc", "q"},
	},
	{
		Word:   Release,
		Number: event.WordRelease,
		Label:  "Torque off",
		Ask:    "Take the torque now? The arm falls unless a person holds it, and the program ends.",
		Help:   "end the run at once and switch the torque off, regardless of --on-exit: hold the arm",
	},
	{Word: query, Help: "print the state"},
}

// Descriptions of the keys at the terminal. Keys describes the keys for all sources of motion, PolicyKeys the
// additional keys for a policy.
const (
	Keys = "keys: right arrow or s: success, and on to the next; f: failure; d: discard; left arrow: rerecord; " +
		"Esc ends the run (also n, r and q)"
	PolicyKeys = "; space: pause, or go on; tab: take the arm over with the leader, or give it back"
)

// Find returns the command with this word.
func Find(word string) (Command, error) {
	i := slices.IndexFunc(Commands, func(c Command) bool { return c.Word == word })
	if i < 0 {
		return Command{}, fmt.Errorf("unknown command %q, want one of %s", word, strings.Join(Words(), ", "))
	}
	return Commands[i], nil
}

// Words returns the words of Commands.
func Words() (words []string) {
	for _, c := range Commands {
		words = append(words, c.Word)
	}
	return words
}

// OfKey returns the command word of a key, empty for a key without a meaning.
func OfKey(key string) string {
	for _, c := range Commands {
		if slices.Contains(c.Keys, key) {
			return c.Word
		}
	}
	return ""
}

// Action carries out one command for a source of an arm's motion.
type Action struct {
	// Do executes the command; text is the rest of the line. acked reports whether the server confirmed the command.
	Do func(ctx context.Context, text string) (acked bool, err error)

	// Works reports whether the command has an effect now. If Works is nil, the command always has an effect.
	Works func() bool
}

// Simple returns the Do of a command without an argument that always succeeds.
func Simple(do func()) func(context.Context, string) (bool, error) {
	return func(context.Context, string) (bool, error) { do(); return false, nil }
}

// urgent are the commands that do not wait for the end of another command, which may wait for a server. Each of their
// actions only stores a request to the tick.
var urgent = []string{Pause, Stop, Release}

// A command waits for its turn no longer than turnLimit, so that wait and execution together take less than timeout: a
// command whose sender has given up must not take effect. Only maxWaiting commands wait, so that one of the atOnce
// threads of the socket is free for an urgent command.
const (
	turnLimit  = 2 * time.Second
	maxWaiting = atOnce - 2
)

var errBusy = errors.New("another command is still under way: try again")

// Panel carries out the commands for one source of motion, never two at the same time, except that the urgent ones
// and status wait for no other command. Any goroutine may call its methods.
type Panel struct {
	Actions map[string]Action // actions by word
	Source  string            // sentence about what moves the arm: the reason why some Actions are missing
	Parts   []string          // names of the parts that a person can take over alone
	State   func() Reply
	Note    func(line string, err error) // records a command with its result

	makeTurn sync.Once
	turn     chan struct{} // made by turns; holds one element during a command
	waiting  atomic.Int32  // commands that wait for their turns

	urging sync.Mutex     // held during an urgent command; guards urges and urged
	urges  int            // number of urgent commands so far
	urged  map[string]int // number of the newest urgent command of each word
}

// Command carries out one line from an operator: a word of Commands with its argument.
func (p *Panel) Command(ctx context.Context, line string) Reply {
	word, text, _ := strings.Cut(line, " ")
	text = strings.TrimSpace(text)
	before := p.newestUrge()
	acked, err := false, errBusy
	switch {
	case word == query:
		_, err = p.carryOut(ctx, word, text)
	case slices.Contains(urgent, word):
		err = p.urge(ctx, word, text)
	case p.takeTurn():
		p.finishTurn(before, func() { acked, err = p.carryOut(ctx, word, text) })
	}
	if word != query {
		p.Note(line, err)
	}
	reply := p.State()
	if reply.OK, reply.Acked = err == nil, acked; err != nil {
		reply.Error, reply.Code = err.Error(), int(exit.Of(err))
	}
	return reply
}

// urge carries out an urgent command at once.
func (p *Panel) urge(ctx context.Context, word, text string) error {
	p.urging.Lock()
	defer p.urging.Unlock()
	_, err := p.carryOut(ctx, word, text)
	if err == nil {
		if p.urged == nil {
			p.urged = map[string]int{}
		}
		p.urges++
		p.urged[word] = p.urges
	}
	return err
}

// newestUrge returns the number of the newest urgent command, 0 before the first.
func (p *Panel) newestUrge() int {
	p.urging.Lock()
	defer p.urging.Unlock()
	return p.urges
}

// turns returns the channel to which a command sends before it begins. The goroutines that wait to send get their turns
// in the order in which they came.
func (p *Panel) turns() chan<- struct{} {
	p.makeTurn.Do(func() { p.turn = make(chan struct{}, 1) })
	return p.turn
}

// takeTurn waits for a turn, and reports whether it came in time.
func (p *Panel) takeTurn() bool {
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > maxWaiting {
		return false
	}
	select {
	case p.turns() <- struct{}{}:
		return true
	case <-time.After(turnLimit):
		return false
	}
}

// finishTurn calls do, repeats some urgent commands, and ends the turn. It repeats the urgent commands with numbers
// above the parameter before. They came during do, or while the command of do waited for its turn, and do may have
// undone them.
func (p *Panel) finishTurn(before int, do func()) {
	defer func() { <-p.turn }() // deferred, so that after a panic other commands get their turns
	do()
	p.urging.Lock()
	defer p.urging.Unlock()
	for word, number := range p.urged {
		if number > before {
			_, _ = p.Actions[word].Do(context.Background(), "") // the actions of urgent commands return no error
		}
	}
}

func (p *Panel) carryOut(ctx context.Context, word, text string) (acked bool, err error) {
	c, err := Find(word)
	action, able := p.Actions[word]
	switch {
	case err != nil:
		return false, err
	case word == query && text == "":
		return false, nil
	case c.Text == "" && text != "":
		return false, fmt.Errorf("%s takes no argument, got %q", word, text)
	case !able:
		return false, fmt.Errorf("%s has no effect here: %s", word, p.Source)
	}
	return action.Do(ctx, text)
}

// Between calls f while no command is in progress.
func (p *Panel) Between(f func()) {
	p.turns() <- struct{}{}
	p.finishTurn(p.newestUrge(), f)
}

// Buttons returns the commands in Actions for which the page has a button or a form. For a take-over it returns one
// command for all parts, and one command for each of Parts.
func (p *Panel) Buttons() (buttons []Command) {
	for _, c := range Commands {
		if _, able := p.Actions[c.Word]; !able || c.Label == "" && c.Text == "" {
			continue
		}
		if c.Word != Correct {
			buttons = append(buttons, c)
			continue
		}
		c.Text = ""
		buttons = append(buttons, c)
		for _, part := range p.Parts {
			one := c
			one.Label, one.Given = c.Label+" "+part, part
			buttons = append(buttons, one)
		}
	}
	return buttons
}

// Working returns the words of the commands that have an effect now, for the page, without the words
// in except.
func (p *Panel) Working(except ...string) []string {
	words := []string{}
	for _, c := range Commands {
		a, able := p.Actions[c.Word]
		if c.Word == query || able && !slices.Contains(except, c.Word) && (a.Works == nil || a.Works()) {
			words = append(words, c.Word)
		}
	}
	return words
}

// EpisodeActions adds the actions of the commands about episodes.
func EpisodeActions(actions map[string]Action, episodes func() *episode.Episodes) {
	for _, word := range episode.Words {
		actions[word] = Action{
			Do: func(ctx context.Context, text string) (bool, error) {
				return false, episodes().Do(ctx, word, text)
			},
			Works: func() bool { return episodes() != nil && episodes().Check(word) == nil },
		}
	}
}
