package model

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// Result is the result of an exploration.
type Result struct {
	World     string
	States    int
	Steps     int
	Broken    Invariant
	Trace     []string // the shortest list of steps to the broken promise
	Truncated bool     // the world was larger than the limit
}

func (r Result) String() string {
	if r.Broken == Holds {
		return fmt.Sprintf("%s: %d states, %d steps", r.World, r.States, r.Steps)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: broken after %d steps (%d states): %s\n", r.World, len(r.Trace), r.States, r.Broken)
	for i, line := range r.Trace {
		fmt.Fprintf(&b, "%3d  %s\n", i+1, line)
	}
	return b.String()
}

// key is a hash of a state, with 128 bits so that two states of a world do not collide.
type key [2]uint64

// node is a reached state: its parent, and which of the parent's steps led to it.
type node struct {
	parent int32
	choice uint8
}

// edge is a step that does not depend on chance, for the search backwards from the ends.
type edge struct{ from, to int32 }

type search struct {
	w     *World
	seeds [2]maphash.Seed
	ids   map[key]int32
	nodes []node
	edges []edge
	goals []int32
	steps int
}

// limit is the largest number of states for a test.
const limit = 3_000_000

// Explore visits every state that the world can reach under the rules, breadth first,
// and stops at the first that breaks an invariant.
func Explore(w World, rules Rules) Result {
	w.Rules = rules
	x := &search{w: &w, ids: map[key]int32{}}
	x.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

	first := w.start()
	x.visit(&first, node{parent: -1})
	level, next := []State{first}, []State(nil)
	for id := int32(0); len(level) > 0; level, next = next, level[:0] {
		for i := range level {
			if broken, at := x.expand(&level[i], id, &next); broken != Holds {
				return x.result(broken, at)
			}
			id++
		}
		if len(x.nodes) > limit {
			r := x.result(Holds, node{parent: -1})
			r.Truncated = true
			return r
		}
	}
	if unending := x.unending(); unending >= 0 {
		return x.result(WayOn, x.nodes[unending])
	}
	return x.result(Holds, node{parent: -1})
}

// visit assigns a number to a state, and reports whether it is new.
func (x *search) visit(s *State, n node) (id int32, isNew bool) {
	k := key{maphash.Comparable(x.seeds[0], *s), maphash.Comparable(x.seeds[1], *s)}
	if id, ok := x.ids[k]; ok {
		return id, false
	}
	id = int32(len(x.nodes)) //nolint:gosec // below the limit
	x.ids[k] = id
	x.nodes = append(x.nodes, n)
	if x.w.ended(s) {
		x.goals = append(x.goals, id)
	}
	return id, true
}

// expand takes every step from a state.
func (x *search) expand(s *State, id int32, next *[]State) (broken Invariant, at node) {
	choice, moves := uint8(0), 0
	waits := x.w.steps(s, func(n *State, by Step) {
		here := node{parent: id, choice: choice}
		choice++
		x.steps++
		if broken != Holds {
			return
		}
		if broken = x.w.check(s, n); broken != Holds {
			at = here
			return
		}
		to, isNew := x.visit(n, here)
		if isNew {
			*next = append(*next, *n)
		}
		if !by.chance() {
			moves++
			x.edges = append(x.edges, edge{id, to})
		}
	})
	switch {
	case broken != Holds:
	case circle(&waits):
		if !x.w.ForgiveDeadlock {
			broken = NoDeadlock
		}
		return broken, x.nodes[id]
	case moves == 0 && !x.w.Endless:
		return x.w.checkRest(s), x.nodes[id]
	}
	return broken, at
}

// unending is the first state from which the runs cannot end, or -1.
func (x *search) unending() int32 {
	if x.w.Endless {
		return -1
	}
	into := make([][]int32, len(x.nodes))
	for _, e := range x.edges {
		into[e.to] = append(into[e.to], e.from)
	}
	ends := make([]bool, len(x.nodes))
	todo := x.goals
	for _, id := range todo {
		ends[id] = true
	}
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range into[id] {
			if !ends[from] {
				ends[from] = true
				todo = append(todo, from)
			}
		}
	}
	for id, ok := range ends {
		if !ok {
			return int32(id)
		}
	}
	return -1
}

// result replays the steps to a node to describe them.
func (x *search) result(broken Invariant, at node) Result {
	r := Result{World: x.w.Name, States: len(x.nodes), Steps: x.steps, Broken: broken}
	var way []uint8
	for at.parent >= 0 {
		way = append(way, at.choice)
		at = x.nodes[at.parent]
	}
	s := x.w.start()
	for i := len(way) - 1; i >= 0; i-- {
		var then State
		choice := uint8(0)
		x.w.steps(&s, func(n *State, by Step) {
			if choice == way[i] {
				then = *n
				r.Trace = append(r.Trace, x.w.describe(by))
			}
			choice++
		})
		s = then
	}
	return r
}
