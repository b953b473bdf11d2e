// Package tidy checks the repository itself: sizes of files, paths and commands named in
// the documentation, imports between rooms, words, traces of one machine. Its checks run as
// tests. It never changes a file, and no product code imports it.
package tidy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Finding is one thing that is not in order.
type Finding struct {
	File string
	Line int // 0: the file as a whole
	Text string
}

func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.File, f.Text)
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text)
}

// Repo is the files of a repository: what is committed or could be.
type Repo struct {
	root  fs.FS
	files []string // slash-separated, relative to the root, sorted
}

// Open lists the files below root: what git knows or would take, or, without git, all
// that is not hidden.
func Open(root string) (*Repo, error) {
	command := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	command.Dir = root
	out, err := command.Output()
	if err != nil {
		return openFS(os.DirFS(root))
	}
	repo := &Repo{root: os.DirFS(root)}
	for _, name := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		// A file that was deleted but not yet staged is still listed.
		if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			repo.files = append(repo.files, name)
		}
	}
	slices.Sort(repo.files)
	repo.files = slices.Compact(repo.files)
	return repo, nil
}

// openFS lists the files of a tree that is not under version control.
func openFS(root fs.FS) (*Repo, error) {
	repo := &Repo{root: root}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == ".bin"):
			return fs.SkipDir
		case entry.Type().IsRegular():
			repo.files = append(repo.files, name)
		}
		return nil
	})
	slices.Sort(repo.files)
	return repo, err
}

// read gives a file's content, or nothing if another process has just removed it.
func (r *Repo) read(name string) ([]byte, error) {
	data, err := fs.ReadFile(r.root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// exists reports whether a path is a file, a directory or a pattern that matches one.
func (r *Repo) exists(name string) bool {
	name = path.Clean(name)
	if name == "." {
		return true
	}
	for _, file := range r.files {
		for p := file; p != "."; p = path.Dir(p) {
			if p == name {
				return true
			}
			if ok, err := path.Match(name, p); err == nil && ok {
				return true
			}
		}
	}
	return false
}

// each calls check with every file that keep wants, and collects what it finds.
func (r *Repo) each(keep func(string) bool, check func(name string, data []byte) []Finding) ([]Finding, error) {
	var found []Finding
	for _, name := range r.files {
		if !keep(name) {
			continue
		}
		data, err := r.read(name)
		if err != nil {
			return nil, err
		}
		found = append(found, check(name, data)...)
	}
	return found, nil
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func isGo(name string) bool { return strings.HasSuffix(name, ".go") && !isTestdata(name) }

func isMarkdown(name string) bool { return strings.HasSuffix(name, ".md") && !isTestdata(name) }

func isTestdata(name string) bool {
	return strings.HasPrefix(name, "testdata/") || strings.Contains(name, "/testdata/")
}

// isProduct reports whether a file is shipped: text that is neither a test nor a checksum list.
func isProduct(name string) bool {
	return !isTestdata(name) && !strings.HasSuffix(name, "_test.go") && path.Base(name) != "go.sum"
}

// lines splits a file into lines; a binary file has none.
func lines(data []byte) []string {
	if bytes.IndexByte(data, 0) >= 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}
