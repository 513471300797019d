// Package program is the common beginning and end of all programs: it reads the command line, shows
// --help, and prints errors.
package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/edge-rt/edge-rt/internal/exit"
	"github.com/edge-rt/edge-rt/internal/plain"
	"github.com/edge-rt/edge-rt/internal/userfile"
)

// Program describes one of the programs.
type Program struct {
	Name, Description string
	Brief             string            // the output of --help for the program as a whole; empty: that of --help-all
	Version           string            // the output of --version
	Env               string            // prefix of the program's environment variables
	Vars              map[string]string // replacements for ${name} in the grammar's tags
	Once              []string          // flags that name a device, a file or a robot; two different values are refused
	Stdout, Stderr    io.Writer
}

// Common are the flags of every program. A grammar embeds it.
type Common struct {
	Version kong.VersionFlag `name:"version" env:"-" help:"Print the version."`
	HelpAll helpAll          `name:"help-all" env:"-" help:"Show every command and flag, with examples: --help shows the usual ones."`
}

type helpAll bool

// BeforeReset prints the whole help, as kong's own flag does.
func (helpAll) BeforeReset(ctx *kong.Context) error {
	err := help(helpOptions, ctx)
	ctx.Kong.Exit(0)
	return err
}

// IgnoreDefault makes the help apply to the program instead of the command that runs without a
// name.
func (helpAll) IgnoreDefault() {}

var helpOptions = kong.HelpOptions{Compact: true, WrapUpperBound: 100, ValueFormatter: kong.DefaultHelpValueFormatter}

// alwaysUsed are the flags that every command takes.
var alwaysUsed = []string{"help", "help-all", "version", "config"}

// usesTag on a command lists the program's flags that the command uses, separated by commas. The command's --help shows
// only these flags, and any other flag is refused. Without the tag a command uses all flags; alwaysUsed are always
// included. The word "typed" after a flag means that the command takes this flag from the command line only, because a
// variable or a file sets the flag for a run.
const usesTag = "uses"

// lenientTag on a command makes it accept all flags of the program. If the --config file has
// unknown keys or broken YAML, the command uses each readable line. The tag is for the command that
// makes an arm limp, because a wrong flag or key must not prevent that.
const lenientTag = "lenient"

// Parse reads the command line into grammar, kong's struct; environment variables and the file of --config have lower
// precedence. If done is true, the program ends with code: Parse has shown the help, or has reported an error.
func (p *Program) Parse(grammar any, args []string) (ctx *kong.Context, code exit.Code, done bool) {
	left := -1 // exit code with which the parser asks to exit, after --help
	parser, err := kong.New(grammar, kong.Name(p.Name), kong.Description(p.Description), kong.DefaultEnvars(p.Env),
		kong.Vars(p.Vars), kong.Vars{"version": p.Version},
		kong.Writers(p.Stdout, p.Stderr), kong.Exit(func(code int) { left = code }),
		kong.ConfigureHelp(helpOptions), kong.Help(p.help), wholeNumbers)
	if err != nil {
		panic(err) // the grammar is wrong
	}
	hideUnreadVariables(parser.Model)
	if err = checkUTF8(args); err == nil {
		args := negativesLast(args)
		ignoreForeignVariables(parser, args)
		ctx, err = parser.Parse(args)
	}
	if err == nil && left < 0 {
		if err = refuseUnusedFlags(ctx); err == nil {
			err = p.checkRepeatedFlags(ctx, args)
		}
		if err == nil {
			err = checkRanges(ctx)
		}
		if err == nil {
			expandPaths(ctx)
		}
	}
	switch {
	case left >= 0:
		return nil, max(exit.Code(left), p.Report(nil)), true
	case err != nil:
		code = exit.Of(err)
		if code == exit.Failure {
			code = exit.Usage
		}
		why := explain(err, parser.Model)
		fmt.Fprintf(plain.Writer(p.Stderr), "%s: %s; see %s --help\n", p.Name, why, p.Name)
		p.reportJSON(args, code, why)
		return nil, code, true
	}
	return ctx, exit.Clean, false
}

// reportJSON handles --json - in a faulty command line: it writes the exit code and the reason as
// JSON to the standard output.
func (p *Program) reportJSON(args []string, code exit.Code, why string) {
	for i, arg := range args {
		if arg != "--json=-" && (arg != "--json" || i+1 == len(args) || args[i+1] != "-") {
			continue
		}
		end := map[string]any{"exit": map[string]any{"code": code, "reason": why}}
		text, _ := json.MarshalIndent(end, "", "  ") // a number and a text can be encoded
		fmt.Fprintf(p.Stdout, "%s\n", text)
		return
	}
}

// isPath matches the placeholders of flags that name a file, a folder or a device.
var isPath = regexp.MustCompile(`^(FILE|DIR|FOLDER|PATH|PORT)\b`)

// expandPaths replaces ~ and $NAME in paths. No shell expands paths in a variable, in the file of
// --config or after --flag=.
func expandPaths(ctx *kong.Context) {
	for _, f := range ctx.Flags() {
		if f.Target.Kind() == reflect.String && isPath.MatchString(f.PlaceHolder) {
			f.Target.SetString(userfile.Expand(f.Target.String()))
		}
	}
}

// checkUTF8 refuses bytes that are not UTF-8. Otherwise the parser would silently replace them by
// U+FFFD.
func checkUTF8(args []string) error {
	for i, arg := range args {
		if utf8.ValidString(arg) {
			continue
		}
		before := "the program's name"
		if i > 0 {
			before = args[i-1]
		}
		return fmt.Errorf("argument %d, after %s, is not UTF-8: %q", i+1, before, arg)
	}
	return nil
}

// negativesLast moves negative numbers to the end, after --, so that the parser does not take them
// for flags. A number after a flag stays in its place, since it may be the flag's value.
func negativesLast(args []string) []string {
	var rest, last []string
	for i, a := range args {
		if a == "--" {
			rest, last = append(rest, a), append(last, args[i+1:]...)
			return append(rest, last...)
		}
		afterFlag := i == 0 || strings.HasPrefix(args[i-1], "-") && !negative(args[i-1])
		if negative(a) && !afterFlag {
			last = append(last, a)
		} else {
			rest = append(rest, a)
		}
	}
	if last == nil {
		return args
	}
	return append(append(rest, "--"), last...)
}

func negative(arg string) bool {
	_, err := strconv.ParseFloat(arg, 64)
	return err == nil && len(arg) > 1 && arg[0] == '-' && strings.IndexByte(".0123456789", arg[1]) >= 0
}

// help prints the short help of the program, or the help of a command. Report returns the error of
// a failed write.
func (p *Program) help(options kong.HelpOptions, ctx *kong.Context) error {
	if ctx.Selected() == nil && p.Brief != "" {
		_, _ = io.WriteString(p.Stdout, p.Brief)
	} else {
		_ = help(options, ctx)
	}
	return nil
}

// help prints kong's help of a command without the flags that the command does not use.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if node := ctx.Selected(); node != nil {
		if uses, ok := usesOf(node); ok {
			for _, f := range ctx.Model.Flags {
				f.Hidden = f.Hidden || uses[f.Name] == unused
				if uses[f.Name] == typed {
					f.Tag.Envs = nil
				}
			}
		}
	}
	return kong.DefaultHelpPrinter(options, ctx)
}

// use describes whether a command uses a flag of the program, and from which sources it takes the
// value.
type use int

const (
	unused use = iota
	used       // from the command line, a variable or the file of --config
	typed      // from the command line only
)

// usesOf finds the usesTag of a command, or of the command to which it belongs.
func usesOf(node *kong.Node) (uses map[string]use, ok bool) {
	for ; node != nil && node.Tag != nil; node = node.Parent {
		if !node.Tag.Has(usesTag) {
			continue
		}
		uses = map[string]use{}
		for _, name := range alwaysUsed {
			uses[name] = used
		}
		for name := range strings.SplitSeq(node.Tag.Get(usesTag), ",") {
			how := used
			if bare, ok := strings.CutSuffix(name, " typed"); ok {
				name, how = bare, typed
			}
			uses[strings.TrimSpace(name)] = how
		}
		return uses, true
	}
	return nil, false
}

// refuseUnusedFlags refuses flags on the command line that the command does not use. It accepts
// such flags in a variable or in the --config file, because these may also be for other commands.
func refuseUnusedFlags(ctx *kong.Context) error {
	node := ctx.Selected()
	uses, ok := usesOf(node)
	if !ok || node.Tag.Has(lenientTag) {
		return nil
	}
	var foreign []string
	for _, p := range ctx.Path {
		if p.Flag == nil || p.Resolved || uses[p.Flag.Name] != unused || !slices.Contains(ctx.Model.Flags, p.Flag) {
			continue
		}
		text := "--" + p.Flag.Name
		if with := commandsWith(ctx.Model, p.Flag.Name); len(with) > 0 {
			text += ", which is for " + strings.Join(with, ", ")
		}
		if !slices.Contains(foreign, text) {
			foreign = append(foreign, text)
		}
	}
	if foreign == nil {
		return nil
	}
	return exit.Errorf(exit.Usage, "%s has no use for %s", commandName(node), strings.Join(foreign, "; nor for "))
}

// checkRepeatedFlags finds flags that the command line has several times although they take one
// value. The parser takes the last value, with which a script can override a setting. So there is
// only a warning. A second device, file or robot (Once) is refused, because an arm on the other
// port would move.
func (p *Program) checkRepeatedFlags(ctx *kong.Context, args []string) error {
	times := map[*kong.Flag]int{}
	var refused []string
	for _, part := range ctx.Path {
		f := part.Flag
		if f == nil || part.Resolved || f.Target.Kind() == reflect.Slice || f.IsCumulative() || f.IsCounter() {
			continue
		}
		if times[f]++; times[f] != 2 {
			continue
		}
		given := written(f, args)
		if len(slices.Compact(slices.Sorted(slices.Values(given)))) < 2 {
			continue // the second value is the same
		}
		text := fmt.Sprintf("--%s is given more than once (%s)", f.Name, strings.Join(given, ", "))
		if slices.Contains(p.Once, f.Name) {
			refused = append(refused, text)
			continue
		}
		fmt.Fprintf(p.Stderr, "%s: %s: the last one counts\n", p.Name, text)
	}
	if refused == nil {
		return nil
	}
	return exit.Errorf(exit.Usage, "%s: it takes one value, want it once", strings.Join(refused, "; "))
}

// written returns the values of a flag on the command line, one for each occurrence.
func written(f *kong.Flag, args []string) (all []string) {
	names := []string{"--" + f.Name, "--no-" + f.Name}
	for _, alias := range f.Aliases {
		names = append(names, "--"+alias)
	}
	if f.Short != 0 {
		names = append(names, "-"+string(f.Short))
	}
	for i, arg := range args {
		if arg == "--" {
			break
		}
		name, value, hasValue := strings.Cut(arg, "=")
		switch {
		case !slices.Contains(names, name):
		case f.IsBool():
			all = append(all, arg)
		case hasValue:
			all = append(all, value)
		case i+1 < len(args):
			all = append(all, args[i+1])
		}
	}
	return all
}

// ignoreForeignVariables makes the parser ignore the variables of flags that the command in args does not use, or takes
// from the command line only. These variables are for other commands, and a wrong value in one of them must not keep an
// arm under torque.
func ignoreForeignVariables(parser *kong.Kong, args []string) {
	ctx, err := kong.Trace(parser, args)
	if err != nil {
		return // Parse will return the error
	}
	uses, limited := usesOf(ctx.Selected())
	for _, f := range ctx.Model.Flags {
		if limited && uses[f.Name] != used {
			f.Tag.Envs = nil
		}
	}
}

// hideUnreadVariables leaves the variable of --config out of the help: the parser opens the file
// before it reads variables.
func hideUnreadVariables(app *kong.Application) {
	for _, f := range app.Flags {
		if f.Target.Type() == reflect.TypeFor[ConfigFile]() {
			f.Tag.Envs = nil
		}
	}
}

func commandsWith(app *kong.Application, flag string) (names []string) {
	for _, leaf := range app.Leaves(true) {
		uses, limited := usesOf(leaf)
		own := slices.ContainsFunc(leaf.Flags, func(f *kong.Flag) bool { return f.Name == flag && !f.Hidden })
		shared := slices.ContainsFunc(app.Flags, func(f *kong.Flag) bool { return f.Name == flag && !f.Hidden })
		if own || shared && (!limited || uses[flag] != unused) {
			names = append(names, commandName(leaf))
		}
	}
	return names
}

// commandName returns a command as a user types it, without the program's name and without arguments.
func commandName(node *kong.Node) string {
	var words []string
	for ; node != nil && node.Parent != nil; node = node.Parent {
		words = append([]string{node.Name}, words...)
	}
	return strings.Join(words, " ")
}

// unknownFlag matches kong's error for a flag that the command does not have.
var unknownFlag = regexp.MustCompile(`unknown flag --([a-z0-9-]+)`)

// enumFlag matches the error for a value that is none of the flag's words.
var enumFlag = regexp.MustCompile(`^--([a-z-]+)(?: must be|: .* want) one of `)

// explain returns the text of an error. For an unknown flag it adds the commands that have the flag, and for a word
// that may be a path the flag for a folder.
func explain(err error, app *kong.Application) string {
	text := Line(err)
	if m := unknownFlag.FindStringSubmatch(text); m != nil {
		if with := commandsWith(app, m[1]); len(with) > 0 {
			return m[0] + " here, which is for " + strings.Join(with, ", ")
		}
	}
	if m := enumFlag.FindStringSubmatch(text); m != nil && len(commandsWith(app, m[1]+"-dir")) > 0 {
		text += " (a folder: --" + m[1] + "-dir)"
	}
	return text
}

// given reports whether the command line has a flag. A value from a variable or from the file of
// --config does not count.
func given(ctx *kong.Context, flag string) bool {
	return slices.ContainsFunc(ctx.Path, func(p *kong.Path) bool {
		return p.Flag != nil && p.Flag.Name == flag && !p.Resolved
	})
}

// Set reports whether a flag has a value from the command line, a variable or a file, not only its default.
func Set(ctx *kong.Context, flag string) bool {
	return slices.ContainsFunc(ctx.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == flag }) ||
		slices.ContainsFunc(ctx.Model.Flags, func(f *kong.Flag) bool {
			return f.Name == flag && slices.ContainsFunc(f.Tag.Envs, func(name string) bool {
				_, ok := os.LookupEnv(name)
				return ok
			})
		})
}

// Report prints err, if it is not nil, in one line after the program's name, and returns the exit
// code of err. If err is nil, Report prints the error of a failed write to an Output instead.
func (p *Program) Report(err error) exit.Code {
	if out, ok := p.Stdout.(*Output); ok && err == nil {
		err = out.Failed()
	}
	if err != nil {
		fmt.Fprintf(plain.Writer(p.Stderr), "%s: %s\n", p.Name, Line(err))
	}
	return exit.Of(err)
}

// Line keeps this many bytes at the beginning and at the end of a long error.
const (
	lineHead = 1500
	lineTail = 500
)

// plainly replaces texts of Go and the kernel that mean nothing to a user.
var plainly = strings.NewReplacer("\n", "; ", context.Canceled.Error(), "interrupted",
	context.DeadlineExceeded.Error(), "no answer in time",
	"getwd: no such file or directory", "the folder in which this program began was deleted: cd to another",
	"too many open files in system", "too many open files in the system: raise sysctl fs.file-max",
	"too many open files", "too many open files: raise ulimit -n, in a unit LimitNOFILE=")

// Line returns an error as one readable line. It leaves out the middle of a long text, such as an
// error that repeats a whole file.
func Line(err error) string {
	text := plainly.Replace(strings.TrimSpace(err.Error()))
	if left := len(text) - lineHead - lineTail; left > 0 {
		text = fmt.Sprintf("%s ... %d bytes ... %s", text[:lineHead], left, text[len(text)-lineTail:])
	}
	return text
}

// ValueOr returns the value of a flag, or the parameter def when the flag was not given and is nil.
func ValueOr[T any](flag *T, def T) T {
	if flag == nil {
		return def
	}
	return *flag
}

// Writable returns an error if the program could not write a flag's file at the end of its work. Writable neither
// changes nor leaves a file.
func Writable(flag, name string) error {
	if info, err := os.Stat(name); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return nil // opening and closing a pipe would end its reader
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = os.Remove(name)
	} else if errors.Is(err, os.ErrExist) {
		// O_CREATE is for a link to a file that does not exist yet
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	}
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return exit.Errorf(exit.Usage, "%s: %w", flag, err)
	}
	return nil
}

// After IgnoreSIGPIPE a write to an output whose reader has ended returns an error. By default such
// a write ends the program, which could leave an arm under torque.
func IgnoreSIGPIPE() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// Interruptible calls IgnoreSIGPIPE and returns a context that ends at SIGINT, SIGTERM or SIGHUP. If nohup has made
// the program ignore SIGHUP, the signal stays ignored, although Go would deliver it.
func Interruptible() (context.Context, context.CancelFunc) {
	IgnoreSIGPIPE()
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}
	if signal.Ignored(syscall.SIGHUP) {
		ends = ends[:2]
	}
	return signal.NotifyContext(context.Background(), ends...)
}

// wholeNumbers makes kong read integers in decimal digits. Kong's own mappers read 010 as 8.
var wholeNumbers = kong.OptionFunc(func(k *kong.Kong) (err error) {
	for kind := reflect.Int; kind <= reflect.Uint64; kind++ {
		err = errors.Join(err, kong.KindMapper(kind, kong.MapperFunc(wholeNumber)).Apply(k))
	}
	return err
})

func wholeNumber(ctx *kong.DecodeContext, target reflect.Value) error {
	t, err := ctx.Scan.PopValue("int")
	if err != nil {
		return err
	}
	text, bits := fmt.Sprint(t.Value), target.Type().Bits()
	if target.CanUint() {
		var n uint64
		n, err = strconv.ParseUint(text, 10, bits)
		target.SetUint(n)
	} else {
		var n int64
		n, err = strconv.ParseInt(text, 10, bits)
		target.SetInt(n)
	}
	if err != nil {
		return fmt.Errorf("expected a valid %d bit int but got %q", bits, text)
	}
	return nil
}
