package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
)

func TestReadSettings(t *testing.T) {
	t.Parallel()
	write := func(t *testing.T, text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return "SERVO_CONFIG=" + path
	}
	read := func(args, environ []string) (settings, error) {
		cmd := &cobra.Command{}
		addRemote(cmd)
		addTenant(cmd)
		if err := cmd.ParseFlags(args); err != nil {
			return settings{}, err
		}
		return readSettings(cmd.Flags(), Environment{Getenv: func(name string) string {
			for _, entry := range environ {
				if value, found := strings.CutPrefix(entry, name+"="); found {
					return value
				}
			}
			return ""
		}})
	}
	const whole = "server: [a:1, b:2]\ntenant: acme\nworkspace: prod\noutput: yaml\n"

	for name, c := range map[string]struct {
		args, environ []string
		file          string
		want          settings
	}{
		"no settings leave the defaults": {
			want: settings{Servers: []string{defaultServer}, Form: outputTable},
		},
		"the file is read": {
			file: whole,
			want: settings{Servers: []string{"a:1", "b:2"}, Tenant: "acme", Workspace: "prod", Form: outputYAML},
		},
		"one server needs no list": {
			file: "server: a:1\n",
			want: settings{Servers: []string{"a:1"}, Form: outputTable},
		},
		"the environment is stronger than the file": {
			file: whole, environ: []string{"SERVO_SERVER=c:3, d:4", "SERVO_TENANT=globex", "SERVO_OUTPUT=json"},
			want: settings{Servers: []string{"c:3", "d:4"}, Tenant: "globex", Workspace: "prod", Form: outputJSON},
		},
		"flags are stronger than everything": {
			file: whole, environ: []string{"SERVO_SERVER=c:3", "SERVO_TENANT=globex", "SERVO_WORKSPACE=dev"},
			args: []string{"--server", "e:5", "--server", "f:6", "-t", "initech", "-w", "test", "-o", "table"},
			want: settings{Servers: []string{"e:5", "f:6"}, Tenant: "initech", Workspace: "test", Form: outputTable},
		},
		"an empty variable has no effect, others are not ours": {
			file: "tenant: acme\n", environ: []string{"SERVO_TENANT=", "SERVO_DATABASE_URL=postgres://x", "TENANT=y"},
			want: settings{Servers: []string{defaultServer}, Tenant: "acme", Form: outputTable},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.file != "" {
				c.environ = append(c.environ, write(t, c.file))
			}
			got, err := read(c.args, c.environ)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}

	t.Run("the file is looked for in the user's configuration", func(t *testing.T) {
		t.Parallel()
		home := t.TempDir()
		directory := filepath.Join(home, ".config", "servo")
		require.NoError(t, os.MkdirAll(directory, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(directory, "config.yaml"), []byte("tenant: acme"), 0o600))
		for _, environ := range [][]string{{"HOME=" + home}, {"HOME=/nowhere", "XDG_CONFIG_HOME=" + filepath.Join(home, ".config")}} {
			got, err := read(nil, environ)
			require.NoError(t, err)
			require.Equal(t, "acme", got.Tenant)
		}
		got, err := read(nil, []string{"HOME=/nowhere"})
		require.NoError(t, err)
		require.Empty(t, got.Tenant)
	})

	for name, environ := range map[string][]string{
		"a file that was asked for must be there":    {"SERVO_CONFIG=/nowhere/servo.yaml"},
		"a file that is no YAML is refused":          {write(t, "server: [")},
		"an unknown setting is refused with the one": {write(t, "tennant: acme")},
		"an output form that is none is refused":     {"SERVO_OUTPUT=jsn"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := read(nil, environ)
			require.True(t, fault.Is(err, fault.InvalidArgument), err)
		})
	}
}
