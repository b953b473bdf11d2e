package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/access"
)

// The environment beside the settings.
const (
	contextVariable = "SERVO_CONTEXT"
	keyVariable     = "SERVO_API_KEY"
	keyFileVariable = "SERVO_API_KEY_FILE"
)

// contextsFile is next to the file with the settings: people edit that, servo writes this. It has
// keys, and only its owner may read it.
const contextsFile = "contexts.yaml"

// contexts are servers with their keys.
type contexts struct {
	Current  string                   `yaml:"current,omitempty"`
	Contexts map[string]serverContext `yaml:"contexts,omitempty"`

	path string
}

type serverContext struct {
	Servers []string `yaml:"servers"`
	CA      string   `yaml:"tls_ca,omitempty"` // the file of the authority that signs for the servers
	Tenant  string   `yaml:"tenant,omitempty"`
	Key     string   `yaml:"key,omitempty"`
	Command string   `yaml:"token_command,omitempty"` // prints a token, instead of a key
}

// readContexts reads the contexts; there may be none.
func readContexts(env Environment) (contexts, error) {
	c := contexts{Contexts: map[string]serverContext{}}
	settings, _ := settingsPath(env)
	if settings == "" || settings == os.DevNull {
		return c, nil
	}
	c.path = filepath.Join(filepath.Dir(settings), contextsFile)
	info, err := os.Stat(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	refuse := func(message, remedy string, cause error) (contexts, error) {
		return c, fault.New(fault.InvalidArgument, c.path+": "+message, fault.Field(contextVariable), fault.Remedy(remedy), fault.Cause(cause))
	}
	if err != nil {
		return refuse("cannot be read", "check that you own the file", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return refuse("has keys and is readable by other users", "chmod 600 "+c.path+"; rotate the keys if other users have read it", nil)
	}
	data, err := os.ReadFile(c.path)
	if err != nil {
		return refuse("cannot be read: "+err.Error(), "check that you own the file", err)
	}
	if err := yaml.Unmarshal(data, &c); err != nil {
		return refuse("is invalid: "+fault.YAMLMessage(err), "correct it, or remove it and log in again", err)
	}
	if c.Contexts == nil {
		c.Contexts = map[string]serverContext{}
	}
	return c, nil
}

// write stores the contexts in a file that only its owner can read.
func (c contexts) write() error {
	if c.path == "" {
		return fault.New(fault.InvalidArgument, "no directory for contexts", fault.Field(configVariable), fault.Remedy("set HOME, XDG_CONFIG_HOME or "+configVariable))
	}
	data, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	failed := func(err error) error {
		return fault.New(fault.Unavailable, "cannot write "+c.path+": "+err.Error(), fault.Field(configVariable), fault.Remedy("check that you own the directory"), fault.Cause(err))
	}
	if err := os.MkdirAll(filepath.Dir(c.path), 0o700); err != nil {
		return failed(err)
	}
	file, err := os.CreateTemp(filepath.Dir(c.path), contextsFile+".*") // with mode 0600
	if err != nil {
		return failed(err)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), c.path)
	}
	if err != nil {
		_ = os.Remove(file.Name()) // it is incomplete
		return failed(err)
	}
	return nil
}

// find is a context by its name.
func (c contexts) find(name string) (serverContext, error) {
	found, ok := c.Contexts[name]
	if ok {
		return found, nil
	}
	names := slices.Sorted(maps.Keys(c.Contexts))
	return found, fault.New(fault.NotFound, fmt.Sprintf("no context %q%s", name, suggest.DidYouMean(name, names)), fault.Field("context"),
		fault.Remedy("list them with servo context list, create one with servo login"))
}

var contextName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,99}$`)

// newContext is the group of commands about contexts.
func newContext() *cobra.Command {
	return group("context", "Manage contexts: servers with their keys", newContextList(),
		changesContext(spec{
			use: "use NAME", short: "Select the context of later commands", example: "  servo context use prod",
			long: "Select the context of later commands. " + contextVariable + " selects one for a single command.",
		}, func(all *contexts, name string) { all.Current = name }, "using context %s"),
		newContextShow(),
		changesContext(spec{
			use: "delete NAME", short: "Delete a context with its key",
			long: "Delete a context with its key. The key stays valid: servo keys revoke revokes it.",
		}, func(all *contexts, name string) {
			delete(all.Contexts, name)
			if all.Current == name {
				all.Current = ""
			}
		}, "context %s deleted"))
}

// contextShown is a context without its key.
type contextShown struct {
	Name    string   `json:"name"`
	Current bool     `json:"current"`
	Servers []string `json:"servers"`
	Tenant  string   `json:"tenant,omitempty"`
	Key     string   `json:"key,omitempty"`
	Command string   `json:"token_command,omitempty"`
}

func (c contexts) shown(name string) contextShown {
	of := c.Contexts[name]
	key := of.Key
	if secret, ok := access.ParseSecret(key); ok {
		key = "sk_" + secret.ID + "_…"
	} else if key != "" {
		key = "…"
	}
	return contextShown{Name: name, Current: name == c.Current, Servers: of.Servers, Tenant: of.Tenant, Key: key, Command: of.Command}
}

func newContextList() *cobra.Command {
	var form output
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List contexts",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readContexts(environmentOf(cmd.Context()))
			if err != nil {
				return err
			}
			list := []contextShown{}
			for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
				list = append(list, c.shown(name))
			}
			if len(list) == 0 && form.forPeople() {
				fmt.Fprintln(cmd.ErrOrStderr(), "no contexts; create one: servo login")
				return nil
			}
			return render(cmd.OutOrStdout(), form, list, func(w io.Writer) { contextTable(w, list) })
		},
	}
	addOutput(cmd, &form)
	return cmd
}

func contextTable(w io.Writer, list []contextShown) {
	columns([]string{"CURRENT", "CONTEXT", "SERVER", "TENANT", "KEY"}, func(_ view, c contextShown) []string {
		mark := ""
		if c.Current {
			mark = "*"
		}
		return []string{mark, c.Name, strings.Join(c.Servers, ","), orDash(c.Tenant), orDash(cmp.Or(c.Key, c.Command))}
	})(w, view{}, list)
}

// changesContext builds a command that changes the contexts by the one that its argument names.
func changesContext(c spec, change func(all *contexts, name string), done string) *cobra.Command {
	return &cobra.Command{
		Use: c.use, Short: c.short, Long: c.long, Example: c.example, Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := readContexts(environmentOf(cmd.Context()))
			if err != nil {
				return err
			}
			if _, err := all.find(args[0]); err != nil {
				return err
			}
			change(&all, args[0])
			if err := all.write(); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), done+"\n", args[0])
			return nil
		},
	}
}

func newContextShow() *cobra.Command {
	cmd := newLocal(spec{use: "show [NAME]", short: "Show the current context, or another"}, func(cmd *cobra.Command, args []string) (contextShown, error) {
		env := environmentOf(cmd.Context())
		c, err := readContexts(env)
		if err != nil {
			return contextShown{}, err
		}
		name := cmp.Or(append(args, env.Getenv(contextVariable), c.Current)...)
		if name == "" {
			return contextShown{}, fault.New(fault.NotFound, "no context selected", fault.Field("context"), fault.Remedy("create one with servo login, or select one with servo context use"))
		}
		_, err = c.find(name)
		return c.shown(name), err
	}, func(w io.Writer, c contextShown) { contextTable(w, []contextShown{c}) })
	cmd.Args = cobra.MaximumNArgs(1)
	return cmd
}
