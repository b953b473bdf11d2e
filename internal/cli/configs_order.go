package cli

import (
	"slices"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// named are the configs that a spec names.
func named(spec *servov1.ConfigSpec) (names []string) {
	for _, name := range []string{spec.GetDependsOn().GetConfig(), spec.GetTrigger().GetEvent().GetConfig()} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// placeName is a config among documents of several workspaces.
type placeName struct{ workspace, name string }

// namedFirst orders documents after those that they name, and otherwise keeps their order. A cycle
// is broken at its first document.
func namedFirst(documents []document) []document {
	byName := make(map[placeName]int, len(documents))
	for i, d := range documents {
		byName[placeName{d.workspace, d.input.GetName()}] = i
	}
	ordered := make([]document, 0, len(documents))
	seen := make([]bool, len(documents))
	var visit func(i int)
	visit = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		for _, name := range named(documents[i].input.GetSpec()) {
			if before, ok := byName[placeName{documents[i].workspace, name}]; ok {
				visit(before)
			}
		}
		ordered = append(ordered, documents[i])
	}
	for i := range documents {
		visit(i)
	}
	return ordered
}

// expect adds to each call which of the configs that it names are saved by the calls before it:
// a dry run saves none.
func expect(calls []configCall) {
	saved := map[placeName]bool{}
	for _, call := range calls {
		for _, d := range call.documents {
			for _, name := range named(d.input.GetSpec()) {
				if saved[placeName{d.workspace, name}] && !slices.Contains(call.request.GetComing(), name) {
					call.request.Coming = append(call.request.Coming, name)
				}
			}
		}
		for _, d := range call.documents {
			saved[placeName{d.workspace, d.input.GetName()}] = true
		}
	}
}
