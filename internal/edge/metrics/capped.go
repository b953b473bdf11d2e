package metrics

import (
	"cmp"
	"slices"
)

// capped has a value for each of at most limit keys, and one for all the others together.
//
// The first keys get their own values at once. When there is no room, the largest of the others may
// replace the smallest, only at a scrape (see turn): so the value of a replaced key was just exported,
// and nothing is lost. What a key has added to the others stays with them: a value never decreases. A
// key that returns starts at zero, as after a restart, which Prometheus expects of a counter.
//
// It is not safe for use by several goroutines.
type capped[K comparable, V any] struct {
	limit int
	fresh func() V
	own   map[K]*held[V]
	other V
	rest  sketch[K] // how much the others had since the last turn
}

type held[V any] struct {
	value  V
	recent int     // since the last turn
	volume float64 // of all turns, half as much weight to each as to the next
}

func newCapped[K comparable, V any](limit int, fresh func() V) *capped[K, V] {
	return &capped[K, V]{limit: limit, fresh: fresh, own: map[K]*held[V]{}, other: fresh(), rest: newSketch[K](max(limit, minSketch))}
}

// of is the value that a key counts in, and whether it is the key's own. It is called once
// for each thing that is counted: how often is how large a key is.
func (c *capped[K, V]) of(key K) (value *V, own bool) {
	h, ok := c.own[key]
	if !ok && len(c.own) < c.limit {
		h, ok = c.take(key), true
	}
	if !ok {
		c.rest.add(key)
		return &c.other, false
	}
	h.recent++
	return &h.value, true
}

func (c *capped[K, V]) take(key K) *held[V] {
	h := &held[V]{value: c.fresh()}
	c.own[key] = h
	return h
}

// The rule of a turn.
const (
	// ahead is how many times as large one of the others must be to take a place: keys of
	// the same size do not change places all the time.
	ahead = 2
	// share of the places change hands in one turn at most, so that a wave of small keys
	// does not wash all series away.
	share = 10
)

// turn gives places to others that have become larger than those who hold them, and returns
// who has lost its place. It is for after a scrape.
func (c *capped[K, V]) turn() (lost []K) {
	type place struct {
		key    K
		volume float64
	}
	places := make([]place, 0, len(c.own))
	for key, h := range c.own {
		h.volume, h.recent = h.volume/2+float64(h.recent), 0
		places = append(places, place{key, h.volume})
	}
	others := c.rest.take()
	if len(c.own) < c.limit {
		return nil // a replaced key would get the free place and start at zero at once
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.volume, b.volume) })
	for i, largest := range others {
		if i == len(places) || len(lost) > c.limit/share || float64(largest.count) <= ahead*places[i].volume {
			break
		}
		delete(c.own, places[i].key)
		c.take(largest.key).volume = float64(largest.count)
		lost = append(lost, places[i].key)
	}
	return lost
}

// drop forgets keys.
func (c *capped[K, V]) drop(forget func(K) bool) {
	for key := range c.own {
		if forget(key) {
			delete(c.own, key)
		}
	}
	c.rest.drop(forget)
}

// minSketch is the smallest number of other keys that are distinguished.
const minSketch = 64

// sketch finds the keys that come most often, by Misra and Gries: each key that makes up
// more than 1/(most+1) of what was added is surely in it. It takes no more memory whatever
// comes.
type sketch[K comparable] struct {
	most   int
	counts map[K]int
}

type counted[K comparable] struct {
	key   K
	count int
}

func newSketch[K comparable](most int) sketch[K] { return sketch[K]{most: most, counts: map[K]int{}} }

func (s *sketch[K]) add(key K) {
	if n, ok := s.counts[key]; ok || len(s.counts) < s.most {
		s.counts[key] = n + 1
		return
	}
	for k, n := range s.counts { // paid for by the additions that it takes back
		if n == 1 {
			delete(s.counts, k)
		} else {
			s.counts[k] = n - 1
		}
	}
}

// take returns the keys, the most frequent first, and resets the sketch.
func (s *sketch[K]) take() []counted[K] {
	keys := make([]counted[K], 0, len(s.counts))
	for k, n := range s.counts {
		keys = append(keys, counted[K]{k, n})
	}
	clear(s.counts)
	slices.SortFunc(keys, func(a, b counted[K]) int { return cmp.Compare(b.count, a.count) })
	return keys
}

func (s *sketch[K]) drop(forget func(K) bool) {
	for k := range s.counts {
		if forget(k) {
			delete(s.counts, k)
		}
	}
}
