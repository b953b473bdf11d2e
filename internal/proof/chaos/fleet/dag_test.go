package fleet

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// job is what an asset's function does beside combining what its upstreams have made.
type job int

const (
	plain job = iota
	pages     // continues from a cursor, page by page, and yields in between
	scan      // adds tasks that its downstreams wait for
	join      // reads what the added tasks have made
)

// node is an asset of a shape.
type node struct {
	key      string
	upstream []string
	job      job
}

// shape is a pipeline whose runs have ten tasks.
type shape struct {
	name  string
	nodes []node
}

// Sizes of the shapes.
const (
	tasksEach = 10
	fanned    = 8 // tasks that a scan adds
	pagesEach = 5 // of a task with a cursor
	partKey   = "fan/part"
)

// shapes are all there are, each as likely as the others.
func shapes() []shape {
	chain := shape{name: "chain"}
	for i := range tasksEach {
		n := node{key: fmt.Sprintf("chain/n%d", i)}
		if i > 0 {
			n.upstream = []string{fmt.Sprintf("chain/n%d", i-1)}
		}
		chain.nodes = append(chain.nodes, n)
	}
	diamond := shape{name: "diamond", nodes: []node{
		{key: "diamond/a"},
		{key: "diamond/b", upstream: []string{"diamond/a"}},
		{key: "diamond/c", upstream: []string{"diamond/a"}, job: pages},
		{key: "diamond/d", upstream: []string{"diamond/a"}},
		{key: "diamond/e", upstream: []string{"diamond/b", "diamond/c"}},
		{key: "diamond/f", upstream: []string{"diamond/c", "diamond/d"}},
		{key: "diamond/g", upstream: []string{"diamond/b", "diamond/d"}, job: pages},
		{key: "diamond/h", upstream: []string{"diamond/e", "diamond/f"}},
		{key: "diamond/i", upstream: []string{"diamond/f", "diamond/g"}},
		{key: "diamond/j", upstream: []string{"diamond/h", "diamond/i"}},
	}}
	wide := shape{name: "wide", nodes: []node{{key: "wide/root"}}}
	leaf := node{key: "wide/sum"}
	for i := range tasksEach - 2 {
		key := fmt.Sprintf("wide/n%d", i)
		wide.nodes = append(wide.nodes, node{key: key, upstream: []string{"wide/root"}})
		leaf.upstream = append(leaf.upstream, key)
	}
	wide.nodes = append(wide.nodes, leaf)
	fan := shape{name: "fan", nodes: []node{
		{key: "fan/scan", job: scan},
		{key: "fan/join", upstream: []string{"fan/scan"}, job: join},
	}}
	return []shape{chain, diamond, wide, fan}
}

// manifest is all shapes, as it is deployed. There are attempts enough for any bad luck, and
// backoffs are short.
func manifest() string {
	var assets, pipelines strings.Builder
	for _, s := range shapes() {
		for _, n := range s.nodes {
			fmt.Fprintf(&assets, "  - {key: %s, go: {}, timeout: 5m, upstream: [%s]}\n", n.key, strings.Join(n.upstream, ", "))
		}
		fmt.Fprintf(&pipelines, "  - name: %s\n    overlap: allow\n    select: [%s]\n"+
			"    parameters: [{name: key, type: string, required: true}]\n"+
			"    retry: {max_attempts: 100, max_deaths: 100, initial_delay: 50ms, max_delay: 300ms}\n", s.name, strings.Join(keysOf(s), ", "))
	}
	fmt.Fprintf(&assets, "  - {key: %s, go: {}, timeout: 5m}\n", partKey)
	return "version: 1\nassets:\n" + assets.String() + "pipelines:\n" + pipelines.String()
}

func keysOf(s shape) []string {
	var keys []string
	for _, n := range s.nodes {
		keys = append(keys, n.key)
	}
	return keys
}

// place is a task of a run: an asset, and a partition if it was added.
type place struct{ Asset, Partition string }

func (p place) String() string { return strings.TrimSuffix(p.Asset+"["+p.Partition+"]", "[]") }

// parts are the tasks that a scan adds.
func parts() []place {
	var added []place
	for i := range fanned {
		added = append(added, place{partKey, strconv.Itoa(i)})
	}
	return added
}

// expectation is what a task must have made and what it must have seen.
type expectation struct {
	value string
	saw   []place
}

// expect computes the results of a run from its shape alone. Nodes are listed after their
// upstreams.
func expect(s shape, key string) map[place]expectation {
	all := map[place]expectation{}
	for _, n := range s.nodes {
		var saw []place
		for _, u := range n.upstream {
			saw = append(saw, place{Asset: u})
		}
		switch n.job {
		case scan:
			for _, p := range parts() {
				all[p] = expectation{value: combine(key, p, nil)}
			}
		case join:
			saw = append(saw, parts()...)
		case plain, pages:
		}
		seen := map[string]string{}
		for _, u := range saw {
			seen[u.String()] = all[u].value
		}
		e := expectation{value: combine(key, place{Asset: n.key}, seen), saw: saw}
		if n.job == pages {
			e.value = turn(e.value, 0, pagesEach)
		}
		all[place{Asset: n.key}] = e
	}
	return all
}

// combine is what a task makes of what it was given. Anything lost, doubled or mixed up on
// the way makes another value.
func combine(key string, of place, seen map[string]string) string {
	hash := fnv.New64a()
	fmt.Fprintf(hash, "%s %s", key, of)
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(hash, " %s=%s", name, seen[name])
	}
	return strconv.FormatUint(hash.Sum64(), 36)
}

// turn goes from one page to another. A page that is left out or read twice makes another
// value.
func turn(value string, from, to int) string {
	for page := from; page < to; page++ {
		value = combine(value, place{Asset: "page", Partition: strconv.Itoa(page)}, nil)
	}
	return value
}

// mix is a stable number for some words.
func mix(words ...any) uint64 {
	hash := fnv.New64a()
	fmt.Fprintln(hash, words...)
	return hash.Sum64() >> 8
}

// The whims of a task, the same wherever it runs.

// How long tasks take at most; some of those that are tried again take longer than others.
const (
	longest = 50 * time.Millisecond
	slow    = 1500 * time.Millisecond
)

func timeOf(key string, of place, attempt int) time.Duration {
	most := longest
	if attempt > 1 && mix("slow", key, of, attempt)%10 == 0 {
		most = slow
	}
	return time.Duration(mix("time", key, of, attempt) % uint64(most))
}

// failsFirst reports whether the first attempt of a task fails with a code that is retried.
func failsFirst(key string, of place) bool { return mix("fails", key, of)%12 == 0 }

// yieldsAt reports whether a task gives itself back after a page.
func yieldsAt(key string, of place, page int) bool { return mix("yields", key, of, page)%3 == 0 }

func TestExpectations(t *testing.T) {
	t.Parallel()
	for _, s := range shapes() {
		t.Run("each value of a "+s.name+" depends on its key and its upstreams", func(t *testing.T) {
			t.Parallel()
			one, two := expect(s, "one"), expect(s, "two")
			require.Len(t, one, tasksEach)
			values := map[string]bool{}
			for of, e := range one {
				require.NotEqual(t, e.value, two[of].value)
				require.False(t, values[e.value], "%s is not the only one with its value", of)
				values[e.value] = true
				for _, u := range e.saw {
					require.Contains(t, one, u)
				}
			}
		})
	}

	t.Run("a page more or less makes another value", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, turn("v", 0, 3), turn(turn("v", 0, 2), 2, 3))
		require.NotEqual(t, turn("v", 0, 3), turn(turn("v", 0, 2), 1, 3))
		require.NotEqual(t, turn("v", 0, 3), turn("v", 0, 2))
	})
}
