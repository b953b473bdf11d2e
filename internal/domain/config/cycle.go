package config

import "slices"

// Cycle returns a path along edges from a config back to itself, both ends included; nil without a
// cycle.
func Cycle(edges map[string][]string, from string) []string {
	done := map[string]bool{}
	var walk func(path []string) []string
	walk = func(path []string) []string {
		for _, next := range edges[path[len(path)-1]] {
			if next == from {
				return append(slices.Clone(path), from)
			}
			if done[next] {
				continue
			}
			done[next] = true
			if found := walk(append(path, next)); found != nil {
				return found
			}
		}
		return nil
	}
	return walk([]string{from})
}
