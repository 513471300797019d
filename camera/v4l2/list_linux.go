package v4l2

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// List returns the cameras of this machine in the order of their numbers. denied has an error for each node that we may
// not open.
func List() (all []Info, denied []error) {
	nodes, _ := filepath.Glob("/dev/video*")
	slices.SortFunc(nodes, func(a, b string) int { return number(a) - number(b) })
	ids, paths := links("/dev/v4l/by-id/*"), links("/dev/v4l/by-path/*")
	for _, node := range nodes {
		info, err := describe(node)
		switch {
		case err == nil:
			info.ByID, info.ByPath = ids[node], paths[node]
			all = append(all, info)
		case !errors.Is(err, ErrNoVideo) && !errors.Is(err, ErrAbsent):
			denied = append(denied, err)
		}
	}
	return all, denied
}

// describe returns a camera's Info. It does not disturb a program that uses the camera.
func describe(path string) (Info, error) {
	d, err := openDevice(path)
	if err != nil {
		return Info{}, err
	}
	defer d.close()
	return Info{
		Path:     path,
		Card:     text(d.cap.card[:]),
		Driver:   text(d.cap.driver[:]),
		Bus:      text(d.cap.busInfo[:]),
		Modes:    d.modes(Want{}),
		Controls: d.controls(),
	}, nil
}

func number(node string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(node, "/dev/video"))
	if err != nil {
		return 1 << 30
	}
	return n
}

func links(pattern string) map[string]string {
	m := map[string]string{}
	found, _ := filepath.Glob(pattern)
	for _, link := range found {
		if node, err := filepath.EvalSymlinks(link); err == nil && m[node] == "" {
			m[node] = link
		}
	}
	return m
}
