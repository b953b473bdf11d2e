package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"go.arco.dev/servo/client"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/worker"
)

// defaultServer is where servo dev and servo server listen for gRPC.
const defaultServer = "127.0.0.1:8081"

// configVariable names the file with the settings.
const configVariable = "SERVO_CONFIG"

// settingNames are the settings: the keys of the file, SERVO_* in the environment, and flags.
var settingNames = []string{"server", "tenant", "workspace", "output", "tls-ca", "tls-cert", "tls-key"}

// settings are the settings of a command that calls a server. A flag overrides the environment,
// that the context, and that the file.
type settings struct {
	Servers   []string
	Tenant    string // "" if not set
	Workspace string // "" is the default of the server
	Form      output
	TLS       client.TLSFiles
	APIKey    string // "" if not set
	Command   string // prints a token, if there is no key
}

// readSettings reads the settings of a command with these flags.
func readSettings(flags *pflag.FlagSet, env Environment) (settings, error) {
	k := koanf.New("/") // no setting has a slash, so none is taken apart
	if err := readSettingsFile(k, env); err != nil {
		return settings{}, err
	}
	chosen, err := chooseContext(k, env)
	if err != nil {
		return settings{}, err
	}
	for _, name := range settingNames {
		value := env.Getenv("SERVO_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		if value == "" {
			continue
		}
		if err := k.Set(name, value); err != nil {
			return settings{}, fmt.Errorf("read the environment: %w", err)
		}
	}
	given := posflag.ProviderWithFlag(flags, "/", nil, func(f *pflag.Flag) (string, any) {
		if !slices.Contains(settingNames, f.Name) {
			return "", nil
		}
		return f.Name, posflag.FlagVal(flags, f)
	})
	if err := k.Load(given, nil); err != nil {
		return settings{}, fmt.Errorf("read the flags: %w", err)
	}
	read, err := checkSettings(k, env)
	if err != nil {
		return read, err
	}
	if read.APIKey = env.Getenv(keyVariable); read.APIKey == "" {
		if read.APIKey, err = worker.ReadKey(keyFileVariable, env.path(env.Getenv(keyFileVariable))); err != nil {
			return read, err
		}
	}
	if read.APIKey == "" {
		elsewhere := func(server string) bool { return !slices.Contains(chosen.Servers, server) }
		if !slices.ContainsFunc(read.Servers, elsewhere) { // it is for its own servers
			read.APIKey, read.Command = chosen.Key, chosen.Command
		}
	}
	return read, err
}

// shown returns the key or token for the servers; "" is none.
func (s settings) shown(ctx context.Context, stderr io.Writer) (string, error) {
	if s.APIKey != "" || s.Command == "" {
		return s.APIKey, nil
	}
	return tokenFrom(ctx, s.Command, stderr)
}

// chooseContext loads the settings of the current context, if there is one.
func chooseContext(k *koanf.Koanf, env Environment) (serverContext, error) {
	all, err := readContexts(env)
	if err != nil {
		return serverContext{}, err
	}
	name := cmp.Or(env.Getenv(contextVariable), all.Current)
	if name == "" {
		return serverContext{}, nil
	}
	chosen, err := all.find(name)
	if err != nil {
		return serverContext{}, err
	}
	for setting, value := range map[string]any{"server": chosen.Servers, "tenant": chosen.Tenant, "tls-ca": chosen.CA} {
		if value == "" {
			continue
		}
		if err := k.Set(setting, value); err != nil {
			return serverContext{}, fmt.Errorf("take the context %s: %w", name, err)
		}
	}
	return chosen, nil
}

// checkSettings converts the loaded values. The server checks names.
func checkSettings(k *koanf.Koanf, env Environment) (settings, error) {
	s := settings{Tenant: k.String("tenant"), Workspace: k.String("workspace"), Form: outputTable}
	s.TLS = client.TLSFiles{CA: env.path(k.String("tls-ca")), Cert: env.path(k.String("tls-cert")), Key: env.path(k.String("tls-key"))}
	if s.Servers = k.Strings("server"); len(s.Servers) == 0 {
		s.Servers = []string{defaultServer}
		if one := k.String("server"); one != "" {
			s.Servers = strings.Split(one, ",")
		}
	}
	for i := range s.Servers {
		s.Servers[i] = strings.TrimSpace(s.Servers[i])
	}
	if form := k.String("output"); form != "" {
		if err := s.Form.Set(form); err != nil {
			return settings{}, fault.New(fault.InvalidArgument, err.Error(), fault.Field("output"), fault.Remedy("correct SERVO_OUTPUT or the configuration file"))
		}
	}
	return s, nil
}

// readSettingsFile loads the file, if it exists. A file that a variable names must exist.
func readSettingsFile(k *koanf.Koanf, env Environment) error {
	path, asked := settingsPath(env)
	if path == "" {
		return nil
	}
	err := k.Load(file.Provider(path), yaml.Parser())
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil
	}
	if err != nil {
		why := fault.YAMLMessage(err)
		if _, ok := errors.AsType[*fs.PathError](err); ok {
			why = err.Error()
		}
		return fault.New(fault.InvalidArgument, fmt.Sprintf("cannot read %s: %s", path, why), fault.Field(configVariable),
			fault.Remedy("write it as YAML, such as: server: 127.0.0.1:8081"), fault.Cause(err))
	}
	for _, key := range k.Keys() {
		if !slices.Contains(settingNames, key) {
			return fault.New(fault.InvalidArgument, fmt.Sprintf("%s: unknown setting %s%s", path, key, suggest.DidYouMean(key, settingNames)),
				fault.Field(configVariable), fault.Remedy("known settings: "+strings.Join(settingNames, ", ")))
		}
	}
	return nil
}

// settingsPath returns the path of the file, and whether a variable names it.
func settingsPath(env Environment) (path string, asked bool) {
	if named := env.Getenv(configVariable); named != "" {
		return env.path(named), true
	}
	if dir := env.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "servo", "config.yaml"), false
	}
	if home := env.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".config", "servo", "config.yaml"), false
	}
	return "", false
}
