package web

import (
	"maps"
	"slices"
)

// Paths are all pages, as patterns.
func (s *Web) Paths() []string { return slices.Sorted(maps.Keys(s.paths)) }
