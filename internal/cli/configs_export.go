package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

func newConfigsExport() *cobra.Command {
	var labels []string
	cmd := newCall(spec{
		use: "export [CONFIG...]", short: "Print configs as YAML that apply reads", tenant: true, names: []nameSource{(*session).configNames},
		long: `Print configs as YAML, one document for each: the named ones, or all of the workspace.
servo configs apply -f reads the output and finds nothing to change.`,
		example: `  servo configs export --tenant acme >acme.yaml
  servo configs export --label provider=AWS >aws.yaml`,
		flags: func(cmd *cobra.Command) { addLabels(cmd, &labels) },
	}, func(ctx context.Context, s *session) error {
		configs, err := s.configsNamed(ctx, s.args, labels)
		if err != nil {
			return err
		}
		for i, c := range configs {
			text, err := configDocument(c)
			if err != nil {
				return err
			}
			if i > 0 {
				text = append([]byte("---\n"), text...)
			}
			if _, err := s.cmd.OutOrStdout().Write(text); err != nil {
				return wrote(err)
			}
		}
		return nil
	})
	cmd.Args = cobra.ArbitraryArgs
	return cmd
}

// configsNamed returns configs by their names, or without names all that have the labels.
func (s *session) configsNamed(ctx context.Context, names, labels []string) (configs []*servov1.Config, err error) {
	if len(names) == 0 {
		return first(client.AllConfigs(ctx, s.client, &servov1.ListConfigsRequest{Tenant: s.Tenant, Workspace: s.Workspace, Label: labels, PageSize: pageSize(0)}), 0)
	}
	for _, name := range names {
		c, err := s.client.Configs().GetConfig(ctx, &servov1.GetConfigRequest{Tenant: s.Tenant, Workspace: s.Workspace, Config: name})
		if err != nil {
			return nil, err
		}
		configs = append(configs, c)
	}
	return configs, nil
}

// configDocument is a config as YAML: its name first, then its fields in order.
func configDocument(c *servov1.Config) ([]byte, error) {
	spec := proto.CloneOf(c.GetSpec())
	if spec.GetTrigger() != nil {
		spec.Trigger.Expression = "" // follows from the template
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("write the config as JSON: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("read the config as JSON: %w", err)
	}
	document := &yaml.Node{Kind: yaml.MappingNode}
	add := func(name string, value any) error {
		var node yaml.Node
		if err := node.Encode(whole(value)); err != nil {
			return fmt.Errorf("write %s as YAML: %w", name, err)
		}
		document.Content = append(document.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &node)
		return nil
	}
	head := []struct {
		name  string
		value any
		given bool
	}{{"name", c.GetName(), true}, {"workspace", c.GetWorkspace(), c.GetWorkspace() != "default"}, {"enabled", false, c.GetState() == servov1.Config_DISABLED}}
	for _, h := range head {
		if !h.given {
			continue
		}
		if err := add(h.name, h.value); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := add(name, fields[name]); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("write the config as YAML: %w", err)
	}
	return out.Bytes(), encoder.Close()
}

func newConfigsEdit() *cobra.Command {
	var f applyFlags
	return newCall(ofConfig(spec{
		use: "edit CONFIG", short: "Edit a config in $EDITOR and apply it", reason: true, flags: f.add,
		long: `Edit a config in the editor that VISUAL or EDITOR names, else vi. The changes are shown and
applied after a confirmation. If the config was changed meanwhile, nothing is applied.`,
		example: "  EDITOR=nano servo configs edit acme-aws-cost",
	}), func(ctx context.Context, s *session) error {
		c, err := getConfig(ctx, s)
		if err != nil {
			return err
		}
		before, err := configDocument(c)
		if err != nil {
			return err
		}
		file, err := edited(ctx, s.cmd, before)
		if err != nil {
			return err
		}
		defer func() { _ = os.Remove(file) }()                       // a leftover is in the temporary directory
		documents, err := readConfigs(s.cmd, file, c.GetWorkspace()) //nolint:contextcheck // the command has the same context
		if err != nil {
			return err
		}
		d := documents[0]
		if len(documents) != 1 || d.input.GetName() != c.GetName() || d.workspace != c.GetWorkspace() {
			return fault.New(fault.InvalidArgument, "the file must have this one config, with its name and workspace", fault.Field("name"),
				fault.Remedy("a config cannot be renamed: create another and delete this one"))
		}
		d.input.Version = c.GetVersion()
		return s.applyConfigs(ctx, documents, nil, f)
	})
}

// edited opens a text in an editor and returns the name of the edited file.
func edited(ctx context.Context, cmd *cobra.Command, text []byte) (name string, err error) {
	file, err := os.CreateTemp("", "servo-config-*.yaml")
	if err != nil {
		return "", fault.New(fault.Unavailable, "cannot create a temporary file: "+err.Error(), fault.Remedy("set TMPDIR to a directory that can be written"), fault.Cause(err))
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", wrote(err)
	}
	env := environmentOf(ctx)
	command := strings.Fields(cmp.Or(env.Getenv("VISUAL"), env.Getenv("EDITOR"), "vi"))
	editor := exec.CommandContext(ctx, command[0], append(command[1:], file.Name())...) //nolint:gosec // the user names the editor
	editor.Dir = env.Dir
	editor.Stdin, editor.Stdout, editor.Stderr = cmd.InOrStdin(), io.Writer(os.Stderr), cmd.ErrOrStderr()
	if err := editor.Run(); err != nil {
		_ = os.Remove(file.Name())
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("the editor %s failed: %v", command[0], err), fault.Field("EDITOR"),
			fault.Remedy("set EDITOR to an editor that waits until the file is closed"), fault.Cause(err))
	}
	return file.Name(), nil
}
