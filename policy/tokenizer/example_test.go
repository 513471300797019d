package tokenizer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/edge-rt/edge-rt/policy/tokenizer"
)

// The example reads a byte-level tokenizer, and writes a task's ids in the form that a policy's graph takes.
func Example() {
	dir, err := os.MkdirTemp("", "tokenizer")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tokenizer.json")
	var vocab []string
	for b := range 256 {
		vocab = append(vocab, fmt.Sprintf(`"<0x%02X>":%d`, b, b))
	}
	file := `{"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},` +
		`"added_tokens":[{"id":300,"content":"cube"}],` +
		`"model":{"type":"BPE","byte_fallback":true,"merges":[],"vocab":{` + strings.Join(vocab, ",") + `}}}`
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		fmt.Println(err)
		return
	}

	spec := tokenizer.Spec{Kind: tokenizer.SentencePiece, MaxLen: 8, Template: "{task}\n"}
	if err := spec.Check(6); err != nil {
		fmt.Println(err)
		return
	}
	t, err := tokenizer.LoadFile(path, &spec)
	if err != nil {
		fmt.Println(err)
		return
	}
	prompt, err := t.Prompt("a cube") // once per task
	if err != nil {
		fmt.Println(err)
		return
	}
	tokens, mask := make([]int64, 8), make([]bool, 8)
	err = prompt.Fill(tokens, mask, nil) // on every request
	fmt.Println(tokens, mask, err)

	_, err = t.Prompt("a cube and a bowl")
	fmt.Println(err)
	// Output:
	// [97 226 150 129 300 10 0 0] [true true true true true true false false] <nil>
	// task has 23 tokens, this policy reads at most 8: shorten it
}
