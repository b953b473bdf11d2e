package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// notIn returns the configs of the documents' workspaces that no document has. It is refused if a
// config that is kept names one of them.
func (s *session) notIn(ctx context.Context, documents []document, labels []string) (gone []*servov1.Config, err error) {
	inFiles := map[placeName]bool{}
	users := map[placeName]string{} // by the config that they name
	var workspaces []string
	for _, d := range documents {
		workspace := orDefault(d.workspace)
		inFiles[placeName{workspace, d.input.GetName()}] = true
		for _, name := range named(d.input.GetSpec()) {
			users[placeName{workspace, name}] = d.input.GetName()
		}
		if !slices.Contains(workspaces, workspace) {
			workspaces = append(workspaces, workspace)
		}
	}
	for _, workspace := range workspaces {
		configs, err := first(client.AllConfigs(ctx, s.client, &servov1.ListConfigsRequest{Tenant: s.Tenant, Workspace: workspace, PageSize: pageSize(0)}), 0)
		if err != nil {
			return nil, err
		}
		for _, c := range configs {
			switch {
			case inFiles[placeName{workspace, c.GetName()}]:
			case hasLabels(c, labels):
				gone = append(gone, c)
			default:
				for _, name := range named(c.GetSpec()) {
					users[placeName{workspace, name}] = c.GetName()
				}
			}
		}
	}
	for _, c := range gone {
		if user, ok := users[placeName{c.GetWorkspace(), c.GetName()}]; ok {
			return nil, fault.New(fault.Conflict, fmt.Sprintf("config %s cannot be deleted: config %s runs after it or depends on it", configName(c), clean(user)),
				fault.Field("--prune"), fault.Remedy("add it to the files, or change "+clean(user)))
		}
	}
	return gone, nil
}

// hasLabels reports whether a config has all labels, written as name=value.
func hasLabels(c *servov1.Config, labels []string) bool {
	return !slices.ContainsFunc(labels, func(label string) bool {
		for name, value := range c.GetSpec().GetLabels() {
			if name+"="+value == label {
				return false
			}
		}
		return true
	})
}

func orDefault(workspace string) string { return cmp.Or(workspace, "default") }

func prunedLines(w io.Writer, p palette, gone []*servov1.Config) {
	for _, c := range gone[:min(len(gone), shownConfigs)] {
		fmt.Fprintln(w, p.mark("- config "+configName(c), "-"))
	}
	if more := len(gone) - shownConfigs; more > 0 {
		fmt.Fprintf(w, "… and %s more\n", count(more, "config"))
	}
}

func prunedText(gone []*servov1.Config) string {
	if len(gone) == 0 {
		return ""
	}
	return fmt.Sprintf(", %d deleted", len(gone))
}
