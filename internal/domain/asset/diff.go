package asset

import (
	"bytes"
	"slices"

	"go.arco.dev/servo/internal/base/canon"
)

// Difference lists the assets and pipelines that a deployment would change.
type Difference struct {
	Assets    Changes `json:"assets"`
	Pipelines Changes `json:"pipelines"`
}

// Changes are names in alphabetical order.
type Changes struct {
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
	Changed []string `json:"changed"`
}

// Empty reports whether a deployment would change nothing.
func (d Difference) Empty() bool { return d.Assets.empty() && d.Pipelines.empty() }

func (c Changes) empty() bool { return len(c.Added)+len(c.Removed)+len(c.Changed) == 0 }

// Diff compares two manifests in their normal form. Without an old manifest everything is added.
func Diff(before, after *Manifest) (Difference, error) {
	if before == nil {
		before = &Manifest{Version: Version}
	}
	if after == nil {
		after = &Manifest{Version: Version}
	}
	old, err := before.Normalised()
	if err != nil {
		return Difference{}, err
	}
	now, err := after.Normalised()
	if err != nil {
		return Difference{}, err
	}
	var d Difference
	if d.Assets, err = changes(old.Assets, now.Assets, func(a Asset) string { return a.Key }); err != nil {
		return Difference{}, err
	}
	d.Pipelines, err = changes(old.Pipelines, now.Pipelines, func(p Pipeline) string { return p.Name })
	return d, err
}

func changes[T any](before, after []T, nameOf func(T) string) (Changes, error) {
	c := Changes{Added: []string{}, Removed: []string{}, Changed: []string{}}
	old := make(map[string][]byte, len(before))
	for _, entry := range before {
		canonical, err := canon.Marshal(entry)
		if err != nil {
			return c, err
		}
		old[nameOf(entry)] = canonical
	}
	for _, entry := range after {
		name := nameOf(entry)
		was, there := old[name]
		delete(old, name)
		canonical, err := canon.Marshal(entry)
		switch {
		case err != nil:
			return c, err
		case !there:
			c.Added = append(c.Added, name)
		case !bytes.Equal(was, canonical):
			c.Changed = append(c.Changed, name)
		}
	}
	for name := range old {
		c.Removed = append(c.Removed, name)
	}
	slices.Sort(c.Removed)
	return c, nil
}
