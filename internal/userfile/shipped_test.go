package userfile

import (
	"path/filepath"
	"testing"

	"github.com/edge-rt/edge-rt/rt/rttest"
)

// Outside a checkout the defaults are the files of the installation; paths of the user stay.
func TestShippedFiles(t *testing.T) {
	installed := t.TempDir()
	checkout := t.TempDir()
	work := t.TempDir()
	for _, file := range []string{
		filepath.Join(installed, "share/edge-rt/demo/server.yaml"),
		filepath.Join(checkout, "testdata/demo/server.yaml"),
		filepath.Join(work, "testdata/demo/so101.json"),
	} {
		rttest.WriteFile(t, "", file, "x")
	}
	t.Chdir(work)
	for _, tt := range []struct{ root, path, want string }{
		{installed, "testdata/demo/server.yaml", filepath.Join(installed, "share/edge-rt/demo/server.yaml")},
		{installed, "testdata/demo", "testdata/demo"}, // the working directory has such a file
		{checkout, "testdata/demo/server.yaml", filepath.Join(checkout, "testdata/demo/server.yaml")},
		{installed, "testdata/demo/so101.json", "testdata/demo/so101.json"},
		{installed, "testdata/demolition/server.yaml", "testdata/demolition/server.yaml"},
		{installed, "server.yaml", "server.yaml"},
		{installed, "testdata/demo/none.yaml", "testdata/demo/none.yaml"},
	} {
		got := tt.path
		shippedWith(tt.root, &got)
		rttest.Want(t, got, tt.want, "%s with programs in %s", tt.path, tt.root)
	}
	elsewhere := "testdata/demo"
	t.Chdir(t.TempDir())
	shippedWith(installed, &elsewhere)
	rttest.Want(t, elsewhere, filepath.Join(installed, "share/edge-rt/demo"), "the whole tree")
}
