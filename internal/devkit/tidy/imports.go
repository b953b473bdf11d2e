package tidy

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

const module = "go.arco.dev/servo"

// ForbiddenImports finds imports that the tables of rooms and doors do not permit.
func (r *Repo) ForbiddenImports() ([]Finding, error) {
	return r.each(isGo, func(name string, data []byte) []Finding {
		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, name, data, parser.ImportsOnly)
		if err != nil {
			return []Finding{{File: name, Text: err.Error()}}
		}
		in := newImporter(name)
		if in.room == nil {
			return []Finding{{File: name, Text: "belongs to no room: move it, or add a room to internal/devkit/tidy/rooms.go"}}
		}
		var found []Finding
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue // the compiler reports it
			}
			if why := in.refuses(imported); why != "" {
				found = append(found, Finding{name, files.Position(spec.Pos()).Line, why})
			}
		}
		return found
	})
}

// importer is a file that imports packages.
type importer struct {
	dir  string
	test bool
	room *Room
}

func newImporter(file string) importer {
	dir := path.Dir(file)
	if dir == "." {
		dir = ""
	}
	return importer{dir: dir, test: strings.HasSuffix(file, "_test.go"), room: roomOf(dir)}
}

// roomOf is the room of a directory, or nil.
func roomOf(dir string) *Room {
	for i, room := range Rooms {
		if dir == room.Dir || room.Dir != "" && within(dir, room.Dir) {
			return &Rooms[i]
		}
	}
	return nil
}

// within reports whether a path is another one or lies below it.
func within(name, parent string) bool {
	return name == parent || strings.HasPrefix(name, parent+"/")
}

// refuses returns why the file may not import a package; empty if it may.
func (f importer) refuses(imported string) string {
	for _, door := range Doors {
		if f.refusedBy(door, imported) {
			return fmt.Sprintf("imports %s: %s", imported, door.Why)
		}
	}
	if !within(imported, module) {
		return f.refusesLibrary(imported)
	}
	dir := strings.TrimPrefix(strings.TrimPrefix(imported, module), "/")
	to := roomOf(dir)
	switch {
	case to == nil:
		return fmt.Sprintf("imports %s, which belongs to no room", imported)
	case to == f.room:
		return f.refusesSibling(dir)
	case slices.Contains(f.room.May, to.Name), f.test && slices.Contains(f.room.Tests, to.Name):
		return ""
	}
	return fmt.Sprintf("room %s does not import room %s (%s)", f.room.Name, to.Name, imported)
}

func (f importer) refusedBy(door Door, imported string) bool {
	standard := !strings.Contains(door.Package, ".")
	if standard && imported != door.Package || !standard && !within(imported, door.Package) {
		return false
	}
	if door.Tests && f.test || within(module+"/"+f.dir, door.Package) {
		return false
	}
	open := func(name string) bool { return name == f.room.Name || within(f.dir, name) }
	return !slices.ContainsFunc(door.Rooms, open) && !(f.test && slices.ContainsFunc(door.TestsOf, open))
}

// refusesLibrary applies a room's own list of libraries.
func (f importer) refusesLibrary(imported string) string {
	first, _, _ := strings.Cut(imported, "/")
	if f.room.Libraries == nil || f.test || !strings.Contains(first, ".") {
		return ""
	}
	if slices.ContainsFunc(f.room.Libraries, func(library string) bool { return within(imported, library) }) {
		return ""
	}
	return fmt.Sprintf("room %s does not use %s", f.room.Name, imported)
}

// refusesSibling applies the rule between packages of one room.
func (f importer) refusesSibling(to string) string {
	if f.test || within(to, f.dir) || within(f.dir, to) || slices.Contains(f.room.Siblings, "*") {
		return ""
	}
	pair := siblingName(f.dir, f.room.Dir) + " > " + siblingName(to, f.room.Dir)
	if from, same, _ := strings.Cut(pair, " > "); from == same || slices.Contains(f.room.Siblings, pair) {
		return ""
	}
	return fmt.Sprintf("packages of room %s do not import each other: %s", f.room.Name, pair)
}

// siblingName is the part of a path that names a package among its siblings.
func siblingName(dir, room string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(dir, room+"/"), "/")
	return first
}
