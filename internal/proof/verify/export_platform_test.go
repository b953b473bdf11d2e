package verify

import (
	"math"

	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/store"
)

// ComparedPlatform are the columns of the installation's own tables that are compared.
func ComparedPlatform() []string {
	c := newPlatformCheck(&verifier{})
	var all []string
	for table, names := range map[string][]string{"pools": c.pools.names, "signing_keys": c.keys.names, "switches": c.switches.names, "releases": c.releases.names, "release_channels": c.channels.names} {
		for i, name := range names {
			if table != "signing_keys" || !c.keys.skip[i] {
				all = append(all, table+"."+name)
			}
		}
	}
	return all
}

// ReplayPlatform folds recorded events of the installation.
func ReplayPlatform(events []store.PlatformEventRow) (map[string]platform.Entity, []Divergence) {
	v := &verifier{codec: store.Codec(), tables: newTables(), limits: limits{position: math.MaxInt64}, report: Report{keep: len(events)}}
	c := newPlatformCheck(v)
	for _, e := range events {
		_ = c.apply(e)
	}
	folded := map[string]platform.Entity{}
	for name, s := range c.subjects {
		folded[name] = s.Entity
	}
	return folded, v.report.Divergences
}
