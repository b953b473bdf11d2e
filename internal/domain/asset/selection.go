package asset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// Selection is a set of assets: the union of its terms.
type Selection struct {
	terms []term
}

// term is one word of the selection language.
type term struct {
	expression int // index of its expression
	kind       termKind
	value      string // key, tag, owner or namespace
	upstream   bool   // includes all upstreams
	downstream bool   // includes all downstreams
}

type termKind int

const (
	termAll termKind = iota
	termKey
	termNamespace
	termTag
	termOwner
)

const remedySelection = "use ns/name, +ns/name, ns/name+, ns/*, tag:x, owner:y or *"

// ParseSelection parses expressions of the selection language. An expression is one term, or several
// between commas or spaces. The selection is the union of all terms:
//
//	ns/name      the asset           tag:x     all assets with the tag
//	+ns/name     and its upstreams   owner:y   all assets of the owner
//	ns/name+     and its downstreams ns/*      all assets of the namespace
//	+ns/name+    both                *         all assets
//
// Every kind of term may have plus signs.
func ParseSelection(expressions ...string) (Selection, error) {
	found := newViolations(fault.InvalidArgument)
	s := parseSelection(found, "select", expressions)
	if err := found.err(); err != nil {
		return Selection{}, err
	}
	return s, nil
}

func parseSelection(found *violations, path string, expressions []string) Selection {
	var s Selection
	if len(expressions) > MaxSelect {
		found.add(path, tooMany(len(expressions), MaxSelect), "select by tag or namespace")
		return s
	}
	seen := map[term]bool{}
	for i, expression := range expressions {
		field := at(path, i)
		if len(expression) > MaxSelectLength {
			found.add(field, fmt.Sprintf("has %d bytes, the limit is %d", len(expression), MaxSelectLength), "split it into several")
			continue
		}
		words := strings.FieldsFunc(expression, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
		if len(words) == 0 {
			found.add(field, "is empty", remedySelection)
		}
		for _, word := range words {
			t, ok := parseTerm(word)
			if !ok {
				found.add(field, quoted(word)+" is not a selection", remedySelection)
				continue
			}
			if !seen[t] {
				seen[t] = true
				t.expression = i
				s.terms = append(s.terms, t)
			}
		}
	}
	return s
}

func parseTerm(word string) (term, bool) {
	var t term
	word, t.upstream = strings.CutPrefix(word, "+")
	word, t.downstream = strings.CutSuffix(word, "+")
	if word == SelectAll {
		return t, true
	}
	var pattern interface{ MatchString(s string) bool }
	if rest, ok := strings.CutPrefix(word, "tag:"); ok {
		t.kind, t.value, pattern = termTag, rest, tagPattern
	} else if rest, ok := strings.CutPrefix(word, "owner:"); ok {
		t.kind, t.value, pattern = termOwner, rest, ownerPattern
	} else if rest, ok := strings.CutSuffix(word, "/*"); ok {
		t.kind, t.value, pattern = termNamespace, rest, namePattern
	} else {
		t.kind, t.value, pattern = termKey, word, keyPattern
	}
	return t, pattern.MatchString(t.value)
}

// String is the selection as one expression.
func (s Selection) String() string {
	words := make([]string, len(s.terms))
	for i, t := range s.terms {
		words[i] = t.String()
	}
	return strings.Join(words, " ")
}

func (t term) String() string {
	word := t.value
	switch t.kind {
	case termAll:
		word = SelectAll
	case termKey:
	case termNamespace:
		word += "/*"
	case termTag:
		word = "tag:" + word
	case termOwner:
		word = "owner:" + word
	}
	if t.upstream {
		word = "+" + word
	}
	if t.downstream {
		word += "+"
	}
	return word
}

// Resolve marks the selected assets of a graph. A term that selects nothing is a fault, because it
// is more often a typing error than intended.
func (s Selection) Resolve(g *Graph) ([]bool, error) {
	found := newViolations(fault.InvalidArgument)
	selected := s.resolve(found, "select", g)
	if err := found.err(); err != nil {
		return nil, err
	}
	return selected, nil
}

func (s Selection) resolve(found *violations, path string, g *Graph) []bool {
	s.reportNothing(found, path, g)
	selected := make([]bool, g.Len())
	var up, down []int
	for _, t := range s.terms {
		matched := t.match(g)
		for _, i := range matched {
			selected[i] = true
		}
		if t.upstream {
			up = append(up, matched...)
		}
		if t.downstream {
			down = append(down, matched...)
		}
	}
	// One search in each direction for all terms together: the closure of a union is the
	// union of the closures.
	spread(selected, g.upstream, up)
	spread(selected, g.downstream, down)
	return selected
}

// reportNothing reports the terms that select nothing, without selecting.
func (s Selection) reportNothing(found *violations, path string, g *Graph) {
	for _, t := range s.terms {
		if t.any(g) {
			continue
		}
		message := ""
		if !found.full() { // searching for a suggestion is expensive
			message = t.nothing(g)
		}
		found.add(at(path, t.expression), message, remedyNothing(t.kind))
	}
}

// spread selects all nodes that are reachable from some nodes.
func spread(selected []bool, next [][]int, from []int) {
	if len(from) == 0 {
		return
	}
	reached := make([]bool, len(next)) // apart from selected: the edges of selected nodes are not yet followed
	for stack := from; len(stack) > 0; {
		node := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if reached[node] {
			continue
		}
		reached[node], selected[node] = true, true
		stack = append(stack, next[node]...)
	}
}

// match returns the assets that a term names, without its plus signs.
func (t term) match(g *Graph) []int {
	switch t.kind {
	case termAll:
		all := make([]int, g.Len())
		for i := range all {
			all[i] = i
		}
		return all
	case termKey:
		if i, ok := g.index[t.value]; ok {
			return []int{i}
		}
	case termNamespace:
		return g.namespaces[t.value]
	case termTag:
		return g.tags[t.value]
	case termOwner:
		return g.owners[t.value]
	}
	return nil
}

// any reports whether match would return an asset.
func (t term) any(g *Graph) bool {
	if t.kind == termAll {
		return g.Len() > 0
	}
	return len(t.match(g)) > 0
}

// Namespace returns the part of the key before the slash.
func (a Asset) Namespace() string {
	namespace, _, _ := strings.Cut(a.Key, "/")
	return namespace
}

// nothing is the message for a term that matches no asset.
func (t term) nothing(g *Graph) string {
	near := func(words map[string][]int) string {
		return suggest.DidYouMean(t.value, slices.Collect(maps.Keys(words)))
	}
	switch t.kind {
	case termAll:
	case termKey:
		return g.unknown(t.value)
	case termNamespace:
		return "no asset in namespace " + t.value + near(g.namespaces)
	case termTag:
		return "no asset with tag " + t.value + near(g.tags)
	case termOwner:
		return "no asset with owner " + t.value + near(g.owners)
	}
	return "the manifest has no assets"
}

func remedyNothing(kind termKind) string {
	switch kind {
	case termNamespace:
		return "name a namespace of this manifest"
	case termTag:
		return "name a tag of this manifest"
	case termOwner:
		return "name an owner of this manifest"
	case termAll, termKey:
	}
	return remedyUnknownAsset
}
