package run

import (
	"fmt"
	"slices"
	"strings"
)

// Diagram returns docs/state-machines.md: both machines as diagrams and tables, generated from the
// transition tables.
func Diagram() string {
	var doc strings.Builder
	doc.WriteString("# State machines\n\nGenerated from the tables in `internal/domain/run/machine.go` by `make generate`. Do not edit.\n")
	section(&doc, "Task", taskTransitions, TaskStates())
	section(&doc, "Run", runTransitions, States())
	return doc.String()
}

func section[S interface {
	~int16
	fmt.Stringer
	Terminal() bool
}, C ~string](doc *strings.Builder, name string, table []transition[S, C], order []S,
) {
	fmt.Fprintf(doc, "\n## %s\n\n```mermaid\nstateDiagram-v2\n", name)
	for _, from := range order {
		for _, to := range order {
			if on := commandsBetween(table, from, to); len(on) > 0 && from != to {
				fmt.Fprintf(doc, "  %s --> %s: %s\n", from, to, strings.Join(on, ", "))
			}
		}
		if from.Terminal() {
			fmt.Fprintf(doc, "  %s --> [*]\n", from)
		}
	}
	doc.WriteString("```\n\n| from | command | to |\n|---|---|---|\n")
	for _, from := range order {
		for _, row := range table {
			if slices.Contains(row.From, from) {
				fmt.Fprintf(doc, "| %s | %s | %s |\n", from, row.On, names(row.To))
			}
		}
	}
}

// commandsBetween returns the commands that lead from one state to another.
func commandsBetween[S ~int16, C ~string](table []transition[S, C], from, to S) []string {
	var commands []string
	for _, row := range table {
		if slices.Contains(row.From, from) && slices.Contains(row.To, to) {
			commands = append(commands, string(row.On))
		}
	}
	return commands
}

func names[S fmt.Stringer](all []S) string {
	text := make([]string, len(all))
	for i, s := range all {
		text[i] = s.String()
	}
	return strings.Join(text, ", ")
}
