package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
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

// settings is what a command that talks to a server needs to know before it does. A flag is
// stronger than the environment, that than the context, and that than the file.
type settings struct {
	Servers   []string
	Tenant    string // "" if nobody says
	Workspace string // "" leaves it to the server
	Form      output
	TLS       client.TLSFiles
	APIKey    string // "" is nobody
	Command   string // prints a token, if there is no key
}

// readSettings gathers the settings of a command with these flags.
func readSettings(flags *pflag.FlagSet, environ func() []string) (settings, error) {
	k := koanf.New("/") // no setting has a slash, so none is taken apart
	if err := readSettingsFile(k, environ); err != nil {
		return settings{}, err
	}
	chosen, err := chooseContext(k, environ)
	if err != nil {
		return settings{}, err
	}
	variables := env.Provider("/", env.Opt{Prefix: "SERVO_", EnvironFunc: environ, TransformFunc: func(name, value string) (string, any) {
		name = strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "SERVO_")), "_", "-")
		if !slices.Contains(settingNames, name) || value == "" {
			return "", nil
		}
		if name == "server" {
			return name, strings.Split(value, ",")
		}
		return name, value
	}})
	if err := k.Load(variables, nil); err != nil {
		return settings{}, fmt.Errorf("read the environment: %w", err)
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
	read, err := checkSettings(k)
	if err != nil {
		return read, err
	}
	if read.APIKey = variable(environ, keyVariable); read.APIKey == "" {
		if read.APIKey, err = worker.ReadKey(keyFileVariable, variable(environ, keyFileVariable)); err != nil {
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

// shown is the key or token that a command shows to the servers; "" is none.
func (s settings) shown(ctx context.Context, stderr io.Writer) (string, error) {
	if s.APIKey != "" || s.Command == "" {
		return s.APIKey, nil
	}
	return tokenFrom(ctx, s.Command, stderr)
}

// chooseContext takes the settings of the context that is used, if one is.
func chooseContext(k *koanf.Koanf, environ func() []string) (serverContext, error) {
	all, err := readContexts(environ)
	if err != nil {
		return serverContext{}, err
	}
	name := firstText(variable(environ, contextVariable), all.Current)
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

// checkSettings reads what was gathered. Names are checked by the server.
func checkSettings(k *koanf.Koanf) (settings, error) {
	s := settings{Tenant: k.String("tenant"), Workspace: k.String("workspace"), Form: outputTable}
	s.TLS = client.TLSFiles{CA: k.String("tls-ca"), Cert: k.String("tls-cert"), Key: k.String("tls-key")}
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
			return settings{}, fault.New(fault.InvalidArgument, err.Error(), fault.Field("output"), fault.Remedy("mend SERVO_OUTPUT or the configuration file"))
		}
	}
	return s, nil
}

// readSettingsFile loads the file, if there is one. One that was asked for must be there.
func readSettingsFile(k *koanf.Koanf, environ func() []string) error {
	path, asked := settingsPath(environ)
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

// settingsPath is where the file is, and whether somebody has said so.
func settingsPath(environ func() []string) (path string, asked bool) {
	values := map[string]string{}
	for _, entry := range environ() {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	switch {
	case values[configVariable] != "":
		return values[configVariable], true
	case values["XDG_CONFIG_HOME"] != "":
		return filepath.Join(values["XDG_CONFIG_HOME"], "servo", "config.yaml"), false
	case values["HOME"] != "":
		return filepath.Join(values["HOME"], ".config", "servo", "config.yaml"), false
	}
	return "", false
}
