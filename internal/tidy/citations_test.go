package tidy

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// cited matches texts that look like a file of this repository: a path below one of its folders, or
// a Markdown or Go file without a folder.
var cited = regexp.MustCompile(
	`(?:[\w@.-]+/)*[\w.*-]+\.(?:go|md|py|sh|c|h|ya?ml|json|html|rules|service|safetensors)\b`)

// elsewhere matches documents that a reader of the repository does not have. The pattern is written
// so that it does not find itself.
var elsewhere = regexp.MustCompile(`\b(?:see` + `ds/\w+|des` + `ign\.md|refer` + `ence/\w+\.md)`)

// placeholder matches a path with a placeholder in it, such as ID.json.
var placeholder = regexp.MustCompile(`(?:^|/)[A-Z]{2,}[^/]*\.\w+$|NNN`)

// citations returns the places where the texts of a repository name files that it does not contain.
// In Go files only comments are searched.
func citations(fsys fs.FS, names []string) (findings []string, err error) {
	var tops, bases []string
	for _, name := range names {
		if top, _, ok := strings.Cut(name, "/"); ok && !slices.Contains(tops, top) {
			tops = append(tops, top)
		}
		bases = append(bases, path.Base(name))
	}
	for _, name := range names {
		comments := path.Ext(name) == ".go"
		if !comments && path.Ext(name) != ".md" || strings.Contains(name, "testdata/") || name == "CHANGELOG.md" ||
			strings.HasPrefix(name, "internal/tidy/") {
			continue
		}
		content, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		for i, line := range strings.Split(string(content), "\n") {
			if comments {
				_, comment, ok := strings.Cut(line, "//")
				if !ok || strings.HasSuffix(strings.SplitN(line, "//", 2)[0], ":") { // a URL is no path
					continue
				}
				line = comment
			}
			for _, p := range elsewhere.FindAllString(line, -1) {
				findings = append(findings, fmt.Sprintf("%s:%d: cites %s, which is not in this repository", name, i+1,
					p))
			}
			for _, at := range cited.FindAllStringIndex(line, -1) {
				p := line[at[0]:at[1]]
				if at[0] > 0 && strings.ContainsAny(line[at[0]-1:at[0]], "/~$<-") || placeholder.MatchString(p) {
					continue // the path is on another machine, or has a placeholder
				}
				if !held(fsys, name, p, tops, bases) {
					findings = append(findings, fmt.Sprintf("%s:%d: cites %s, which is not there", name, i+1, p))
				}
			}
		}
	}
	return findings, nil
}

// held reports whether the path p, which file names, exists or is not of this repository.
func held(fsys fs.FS, file, p string, tops, bases []string) bool {
	top, _, folder := strings.Cut(p, "/")
	if !folder {
		ext := path.Ext(p)
		return ext != ".go" && ext != ".md" || matches(bases, p)
	}
	for _, from := range []string{".", path.Dir(file)} {
		if found, _ := fs.Glob(fsys, path.Join(from, p)); len(found) > 0 {
			return true
		}
	}
	return !slices.Contains(tops, top) && !strings.HasPrefix(p, "..")
}

func matches(names []string, pattern string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		ok, _ := path.Match(pattern, n)
		return ok
	})
}

// The reader can open every file that a comment or a page cites.
func TestCitedFilesAreThere(t *testing.T) {
	names := listedFiles(t, "--cached", "--others", "--exclude-standard")
	findings := rttest.Must(citations(os.DirFS(root), names))(t)
	for _, f := range findings {
		t.Error(f)
	}
}

func TestCitationRuleBites(t *testing.T) {
	for _, tt := range []struct{ name, file, content, want string }{
		{"a file that is there", "a/b.go", "// see a/b.go and b.go and docs/x.md", ""},
		{"one that is not", "a/b.go", "x := 1 // see a/c.go", "a/c.go"},
		{"not even without a folder", "a/b.go", "// see c.go", "c.go"},
		{"a page", "docs/x.md", "[y](y.md)", "y.md"},
		{"beside the page", "docs/x.md", "[x](x.md)", ""},
		{"another repository's", "a/b.go", "// lerobot/policies/act.py and zenoh/api.md", ""},
		{"code is no comment", "a/b.go", "open(\"a/c.go\")", ""},
		{"many files", "docs/x.md", "docs/*.md and ID.json and a/NAME.yaml", ""},
		{"a document that readers lack", "a/b.go", "// Source: see" + "ds/000", "not in this repository"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fsys := fstest.MapFS{"a/b.go": {}, "docs/x.md": {}}
			fsys[tt.file] = &fstest.MapFile{Data: []byte(tt.content)}
			findings := rttest.Must(citations(fsys, []string{"a/b.go", "docs/x.md"}))(t)
			var wants []string
			if tt.want != "" {
				wants = []string{tt.want}
			}
			want(t, findings, wants)
		})
	}
}
