package devpg

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
)

// fakeServer makes a directory that looks like the binaries of a PostgreSQL version.
func fakeServer(t *testing.T, root, version string) (bin string) {
	t.Helper()
	bin, share := filepath.Join(root, "bin"), filepath.Join(root, "share")
	require.NoError(t, os.MkdirAll(bin, 0o755))   //nolint:gosec // like a real one
	require.NoError(t, os.MkdirAll(share, 0o755)) //nolint:gosec // like a real one
	require.NoError(t, os.WriteFile(filepath.Join(share, "postgres.bki"), nil, 0o600))
	script(t, filepath.Join(bin, "postgres"), `echo "postgres (PostgreSQL) `+version+`"`)
	script(t, filepath.Join(bin, "initdb"), `echo "share_path=`+share+`" >&2`)
	script(t, filepath.Join(bin, "pg_ctl"), `exit 1`)
	return bin
}

// script writes a program through a process of its own: a file that this process has open
// for writing could not be executed while another test forks.
func script(t *testing.T, path, body string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `cat > "$1" && chmod 755 "$1"`, "sh", path)
	cmd.Stdin = strings.NewReader("#!/bin/sh\n" + body + "\n")
	require.NoError(t, cmd.Run())
}

// fakeFinder searches only where the test specifies.
func fakeFinder(path, patterns []string) finder {
	f := systemFinder(owner{})
	f.override, f.path, f.patterns = "", path, patterns
	return f
}

func TestFindBinaries(t *testing.T) {
	t.Parallel()

	t.Run("the newest wins, wherever it is", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		first := fakeServer(t, filepath.Join(root, "15"), "15.18 (Debian 15.18-0+deb12u1)")
		fakeServer(t, filepath.Join(root, "16"), "16.9")
		newest := fakeServer(t, filepath.Join(root, "17"), "17.10")
		fakeServer(t, filepath.Join(root, "17a"), "17.9")
		found, err := fakeFinder([]string{first}, []string{filepath.Join(root, "*", "bin")}).find(t.Context())
		require.NoError(t, err)
		require.Len(t, found, 4)
		require.Equal(t, newest, found[0].bin)
		require.Equal(t, 15, found[3].major)
	})

	t.Run("a link in PATH leads to the directory where its sisters are", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		bin := fakeServer(t, filepath.Join(root, "real"), "16.1")
		links := filepath.Join(root, "links")
		require.NoError(t, os.Mkdir(links, 0o700))
		require.NoError(t, os.Symlink(filepath.Join(bin, "postgres"), filepath.Join(links, "postgres")))
		found, err := fakeFinder([]string{"", links}, nil).find(t.Context())
		require.NoError(t, err)
		require.Equal(t, bin, found[0].bin)
	})

	t.Run("incomplete or old installations are skipped, with the reason", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		wrapper := filepath.Join(root, "wrapper")
		require.NoError(t, os.Mkdir(wrapper, 0o700))
		script(t, filepath.Join(wrapper, "postgres"), `echo "postgres (PostgreSQL) 18.1"`)
		copied := fakeServer(t, filepath.Join(root, "copied"), "18.1")
		require.NoError(t, os.RemoveAll(filepath.Join(root, "copied", "share")))
		old := fakeServer(t, filepath.Join(root, "old"), "14.22")
		broken := fakeServer(t, filepath.Join(root, "broken"), "18.1")
		script(t, filepath.Join(broken, "postgres"), "exit 3")
		path := []string{wrapper, copied, old, broken}

		_, err := fakeFinder(path, nil).find(t.Context())
		require.True(t, fault.Is(err, fault.NotFound))
		for _, reason := range []string{wrapper + ": no initdb", "share files are missing", "PostgreSQL 14, older than 15", "exit status 3"} {
			require.ErrorContains(t, err, reason)
		}

		good := fakeServer(t, filepath.Join(root, "good"), "15.0")
		found, err := fakeFinder(append(path, good), nil).find(t.Context())
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, good, found[0].bin)
	})

	t.Run("nothing found: the message has the commands that help", func(t *testing.T) {
		t.Parallel()
		_, err := fakeFinder([]string{t.TempDir()}, []string{filepath.Join(t.TempDir(), "*")}).find(t.Context())
		require.True(t, fault.Is(err, fault.NotFound))
		for _, command := range []string{"make setup", "apt-get install postgresql", "brew install postgresql@17", "SERVO_PG_BIN"} {
			require.ErrorContains(t, err, command)
		}
	})

	t.Run("SERVO_PG_BIN is the only place looked at, right or wrong", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		newer := fakeServer(t, filepath.Join(root, "newer"), "18.1")
		asked := fakeServer(t, filepath.Join(root, "asked"), "15.2")
		f := fakeFinder([]string{newer}, nil)
		f.override = asked
		found, err := f.find(t.Context())
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, asked, found[0].bin)

		f.override = root
		_, err = f.find(t.Context())
		require.True(t, fault.Is(err, fault.NotFound))
		require.ErrorContains(t, err, "SERVO_PG_BIN")
	})

	t.Run("a cancelled search reports it", func(t *testing.T) {
		t.Parallel()
		bin := fakeServer(t, t.TempDir(), "17.1")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := fakeFinder([]string{bin}, nil).find(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestParseVersion(t *testing.T) {
	t.Parallel()

	t.Run("releases, betas and distributions", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string][2]int{
			"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n": {15, 18},
			"postgres (PostgreSQL) 17.2 (Homebrew)":                  {17, 2},
			"postgres (PostgreSQL) 18beta1":                          {18, 0},
			"postgres (PostgreSQL) 9.6.24":                           {9, 6},
		} {
			major, minor, err := parseVersion(text)
			require.NoError(t, err)
			require.Equal(t, want, [2]int{major, minor}, text)
		}
	})

	t.Run("any other text is refused or read, never fatal", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			text := rapid.OneOf(rapid.String(), rapid.StringMatching(`postgres \(PostgreSQL\) [0-9.a-z]{0,12}`)).Draw(t, "text")
			major, minor, err := parseVersion(text)
			require.True(t, err != nil || (major >= 0 && minor >= 0))
		})
	})
}

func TestQuote(t *testing.T) {
	t.Parallel()

	t.Run("a quoted value has no open quote and reads back as it was", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			value := rapid.StringOf(rapid.RuneFrom([]rune{'\'', '\\', '\n', '\r', 'n', 'x', '#', 'é'})).Draw(t, "value")
			require.Equal(t, value, unquote(t, quote(value)))
		})
	})
}

// unquote reads a value as PostgreSQL's configuration parser does.
func unquote(t *rapid.T, quoted string) string {
	require.GreaterOrEqual(t, len(quoted), 2)
	require.Equal(t, "''", quoted[:1]+quoted[len(quoted)-1:])
	var text strings.Builder
	for inner := quoted[1 : len(quoted)-1]; inner != ""; {
		switch {
		case strings.HasPrefix(inner, `''`), strings.HasPrefix(inner, `\\`):
			text.WriteByte(inner[0])
			inner = inner[2:]
		case strings.HasPrefix(inner, `\n`):
			text.WriteByte('\n')
			inner = inner[2:]
		case strings.HasPrefix(inner, `\r`):
			text.WriteByte('\r')
			inner = inner[2:]
		default:
			require.NotContains(t, "'\\\n\r", inner[:1], "left open in %s", quoted)
			text.WriteByte(inner[0])
			inner = inner[1:]
		}
	}
	return text.String()
}

func TestOwner(t *testing.T) {
	t.Parallel()
	otherUser := owner{uid: 54321, gid: 54321, dropped: true}

	t.Run("the directory itself is opened for the one who runs PostgreSQL", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(openDir(t), "closed")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.False(t, otherUser.passes(dir))
		require.NoError(t, otherUser.openPath(dir))
		require.True(t, otherUser.passes(dir))
	})

	t.Run("a closed directory above is named and stays closed", func(t *testing.T) {
		t.Parallel()
		closed := filepath.Join(openDir(t), "closed")
		dir := filepath.Join(closed, "inside")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		err := otherUser.openPath(dir)
		require.True(t, fault.Is(err, fault.Conflict))
		require.ErrorContains(t, err, "chmod o+x "+closed)
		require.False(t, otherUser.passes(closed))
	})

	t.Run("the caller's own PostgreSQL settings and language do not leak in", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"LC_ALL=C", "PATH=/bin", "HOME=/home"}, cleanEnvironment([]string{
			"PATH=/bin", "PGPORT=1", "PGDATA=/x", "LC_ALL=de_DE.UTF-8", "LANG=de_DE", "LANGUAGE=de", "HOME=/home",
		}))
	})
}

func TestInstalled(t *testing.T) {
	t.Parallel()
	found, err := Installed(t.Context())
	require.NoError(t, err)
	require.Regexp(t, `^PostgreSQL \d+\.\d+ in /`, found)
}
