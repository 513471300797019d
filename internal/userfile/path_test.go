package userfile

import (
	"os/user"
	"testing"
)

func TestExpand(t *testing.T) {
	t.Setenv("HOME", "/u/")
	t.Setenv("CACHE", "~/c")
	root, err := user.Lookup("root")
	if err != nil {
		t.Skip("no user root here")
	}
	for path, want := range map[string]string{
		"":                "",
		"/a/~/b":          "/a/~/b",
		"~":               "/u",
		"~/a":             "/u/a",
		"~root/a":         root.HomeDir + "/a",
		"~no-such-user/a": "~no-such-user/a",
		"$HOME/a":         "/u//a",
		"${HOME}a":        "/u/a",
		"a$CACHE":         "a~/c",
		"$NO_SUCH_NAME/a": "$NO_SUCH_NAME/a",
		"${}/${HOME/$":    "${}/${HOME/$",
		"~/$HOME":         "/u//u/",
	} {
		if got := Expand(path); got != want {
			t.Errorf("Expand(%q) = %q, want %q", path, got, want)
		}
	}
	t.Setenv("HOME", "/")
	if got := Expand("~"); got != "/" {
		t.Errorf("Expand(~) with / as home = %q, want /", got)
	}
	if CheckPath("a~") != nil || CheckPath("./~a") != nil || CheckPath("~no-such-user/a") == nil {
		t.Error("Check wants to refuse what begins with ~, and nothing else")
	}
}
