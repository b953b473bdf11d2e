package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/store"
)

const (
	// namesTried is how many names a misspelt one is compared with.
	namesTried = 10_000
	// dependentsNamed is how many dependents of a config an error names.
	dependentsNamed = 5
)

// reference is another config that a spec names.
type reference struct{ field, name string }

// referencesOf are the configs that a spec names.
func referencesOf(s config.Spec) (found []reference) {
	if s.DependsOn != nil && s.DependsOn.Config != "" {
		found = append(found, reference{"depends_on.config", s.DependsOn.Config})
	}
	if on := s.Trigger.Event; on != nil && on.Config != "" {
		found = append(found, reference{"trigger.event.config", on.Config})
	}
	return found
}

// references are the configs that exist, or will exist after this request.
type references struct {
	workspace string
	known     map[string]bool
	names     []string // all of them, if a named one does not exist
	templates templates
	edges     map[string][]string // configs of the workspace that name others, after this request
}

// readReferences reads the configs that a request names. Existing ones are locked: none of them is deleted
// before this transaction has ended.
func readReferences(ctx context.Context, tx *store.Tx, w store.Workspace, r SaveConfigs, existing map[string]*store.ConfigState) (references, error) {
	configs := r.Configs
	refs := references{workspace: w.Name, known: make(map[string]bool, len(existing)+len(configs))}
	for name := range existing {
		refs.known[name] = true
	}
	for _, c := range configs {
		refs.known[c.Name] = true
	}
	if r.DryRun {
		for _, name := range r.Coming {
			refs.known[name] = true
		}
	}
	for _, c := range configs {
		for _, r := range referencesOf(c.Spec) {
			if refs.known[r.name] || refs.names != nil {
				continue
			}
			names, err := tx.ConfigNames(ctx, w, namesTried)
			if err != nil {
				return refs, err
			}
			for _, c := range configs {
				names = append(names, c.Name)
			}
			refs.names = names
		}
	}
	return refs, refs.readEdges(ctx, tx, w, configs)
}

// namesOthers reports whether a request has a config that runs after another or depends on one.
func namesOthers(configs []SaveConfig) bool {
	return slices.ContainsFunc(configs, func(c SaveConfig) bool { return len(referencesOf(c.Spec)) > 0 })
}

// readEdges reads which configs name which, with those of the request in place of the stored ones.
// The workspace is locked: two requests cannot each add one half of a cycle.
func (refs *references) readEdges(ctx context.Context, tx *store.Tx, w store.Workspace, configs []SaveConfig) (err error) {
	if !namesOthers(configs) {
		return nil
	}
	if refs.edges, err = tx.ConfigEdges(ctx, w); err != nil {
		return err
	}
	for _, c := range configs {
		delete(refs.edges, c.Name)
		for _, r := range referencesOf(c.Spec) {
			refs.edges[c.Name] = append(refs.edges[c.Name], r.name)
		}
	}
	return nil
}

// check refuses a spec that names itself or a config that does not exist, or that closes a cycle: its
// configs would trigger each other, or wait for each other, without end.
func (refs references) check(own string, s config.Spec) error {
	for _, r := range referencesOf(s) {
		switch {
		case r.name == own:
			return fault.New(fault.InvalidArgument, "names the config itself", fault.Field(r.field), fault.Remedy("name another config"))
		case !refs.known[r.name]:
			return fault.New(fault.InvalidArgument, fmt.Sprintf("no config %.100q in workspace %s", r.name, refs.workspace)+suggest.DidYouMean(r.name, refs.names),
				fault.Field(r.field), fault.Remedy("name a config that exists, or save it in the same request"))
		}
	}
	if named := referencesOf(s); len(named) > 0 {
		if path := config.Cycle(refs.edges, own); path != nil {
			return fault.New(fault.InvalidArgument, "cycle: "+strings.Join(path[:min(len(path), maxNamed)], " → "), fault.Field(named[0].field),
				fault.Remedy("remove one of these references"), fault.Value("cycle", path))
		}
	}
	return nil
}

// refuseIfDependedOn refuses to delete a config that others run after or depend on.
func refuseIfDependedOn(ctx context.Context, tx *store.Tx, c store.ConfigState) error {
	names, err := tx.ConfigDependents(ctx, store.ConfigName{Tenant: c.Tenant, Workspace: c.Workspace, Name: c.Name}, dependentsNamed+1)
	if err != nil || len(names) == 0 {
		return err
	}
	text := strings.Join(names[:min(len(names), dependentsNamed)], ", ")
	if len(names) > dependentsNamed {
		text += " and others"
	}
	return fault.New(fault.Conflict, "configs run after "+c.Name+" or depend on it: "+text, fault.Field("config"),
		fault.Remedy("change them first, or delete it with force; their slots then find no success of it"), fault.Value("dependents", names))
}
