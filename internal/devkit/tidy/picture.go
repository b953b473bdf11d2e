package tidy

import (
	"fmt"
	"slices"
	"strings"
)

// Picture is the table of rooms as README.md shows it: a diagram whose arrows are imports, without
// those that follow from others, and a table below it.
func Picture() string {
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TD\n")
	for i := len(Rooms) - 1; i >= 0; i-- {
		for _, to := range direct(Rooms[i]) {
			fmt.Fprintf(&b, "  %s --> %s\n", Rooms[i].Name, to)
		}
	}
	b.WriteString("```\n\n| room | folder | contains | may import |\n|---|---|---|---|\n")
	for i := len(Rooms) - 1; i >= 0; i-- {
		room := Rooms[i]
		dir, may := "`"+room.Dir+"`", strings.Join(room.May, ", ")
		if room.Dir == "" {
			dir = "`*.go`"
		}
		if may == "" {
			may = "nothing"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", room.Name, dir, room.Holds, may)
	}
	return b.String()
}

// direct are the imports of a room that it does not also have through another of them.
func direct(room Room) []string {
	var names []string
	for _, name := range room.May {
		through := slices.ContainsFunc(room.May, func(other string) bool { return other != name && reaches(other, name) })
		if !through {
			names = append(names, name)
		}
	}
	return names
}

// reaches reports whether one room imports another, directly or not.
func reaches(from, to string) bool {
	at := slices.IndexFunc(Rooms, func(r Room) bool { return r.Name == from })
	return slices.ContainsFunc(Rooms[at].May, func(next string) bool { return next == to || reaches(next, to) })
}
