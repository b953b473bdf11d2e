package web

import (
	"maps"
	"slices"
	"time"
)

// Paths are all pages, as patterns.
func (s *Web) Paths() []string { return slices.Sorted(maps.Keys(s.paths)) }

// At lets the clock be a test's.
func (s *Web) At(now func() time.Time) { s.now = now }

// OfThisMachine reports whether a Host is a name of this machine.
func OfThisMachine(host string) bool { return ofThisMachine(host) }
