package devpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

const (
	// oldestMajor is the oldest PostgreSQL that Servo runs on.
	oldestMajor = 15
	// binVariable names the directory of the server binaries, ahead of all searching.
	binVariable = "SERVO_PG_BIN"
	// askPatience bounds one question to a binary that may be anything.
	askPatience = 10 * time.Second
)

// remedyInstall is the exact command for those who have no PostgreSQL.
const remedyInstall = "run `make setup`, or `apt-get install postgresql` on Debian and Ubuntu, " +
	"or `brew install postgresql@17` on macOS; or set " + binVariable +
	" to the directory that holds initdb, pg_ctl and postgres"

// installation is one whole set of server binaries.
type installation struct {
	bin   string // directory of initdb, pg_ctl, postgres
	share string // directory of postgres.bki and extension/
	major int
	minor int
}

func (i installation) program(name string) string { return filepath.Join(i.bin, name) }

func (i installation) String() string {
	return fmt.Sprintf("PostgreSQL %d.%d in %s", i.major, i.minor, i.bin)
}

// hasExtension reports whether the extension came with this installation.
func (i installation) hasExtension(name string) bool {
	_, err := os.Stat(filepath.Join(i.share, "extension", name+".control"))
	return err == nil
}

// installations are what was found, newest first; never empty.
type installations []installation

// forCluster picks the newest, or, for a directory that already holds a cluster, the one of
// the cluster's own major version: PostgreSQL reads no other.
func (found installations) forCluster(dir string) (installation, error) {
	if dir == "" {
		return found[0], nil
	}
	file := filepath.Join(dir, dataName, "PG_VERSION")
	content, err := os.ReadFile(file) //nolint:gosec // the caller names the directory
	if errors.Is(err, os.ErrNotExist) {
		return found[0], nil
	}
	if err != nil {
		return installation{}, fmt.Errorf("read the cluster's version: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return installation{}, fmt.Errorf("read the cluster's version from %s: %w", file, err)
	}
	for _, candidate := range found {
		if candidate.major == major {
			return candidate, nil
		}
	}
	return installation{}, fault.New(fault.Conflict,
		fmt.Sprintf("%s was made by PostgreSQL %d, and here is only %s", dir, major, found[0]),
		fault.Field("dir"),
		fault.Remedy(fmt.Sprintf("install PostgreSQL %d, or use another directory", major)))
}

// finder looks for server binaries. Where it looks is given, so that tests can look elsewhere.
type finder struct {
	override string   // the only directory, if set
	path     []string // directories of PATH
	patterns []string // well-known directories
	// ask runs a program and returns all it printed.
	ask func(ctx context.Context, program string, args ...string) (string, error)
}

// systemFinder looks where PostgreSQL is found on Debian, Red Hat, Homebrew and from source.
// Binaries are asked as the user who will run them: what that user cannot execute is no find.
func systemFinder(own owner) finder {
	return finder{
		override: os.Getenv(binVariable),
		path:     filepath.SplitList(os.Getenv("PATH")),
		patterns: []string{
			"/usr/lib/postgresql/*/bin",
			"/usr/pgsql-*/bin",
			"/usr/local/pgsql/bin",
			"/opt/homebrew/opt/postgresql@*/bin",
			"/usr/local/opt/postgresql@*/bin",
		},
		ask: func(ctx context.Context, program string, args ...string) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, askPatience)
			defer cancel()
			output, err := own.command(ctx, program, args...).CombinedOutput()
			return string(output), err
		},
	}
}

// find returns every usable installation, newest first.
func (f finder) find(ctx context.Context) (installations, error) {
	if f.override != "" {
		found, err := f.inspect(ctx, f.override)
		if err != nil {
			return nil, fault.New(fault.NotFound, "no PostgreSQL server to use in "+f.override+": "+err.Error(),
				fault.Field(binVariable), fault.Remedy("unset it, or "+remedyInstall), fault.Cause(err))
		}
		return installations{found}, nil
	}
	var found installations
	var refused []string
	for _, bin := range f.candidates() {
		candidate, err := f.inspect(ctx, bin)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("look for PostgreSQL: %w", ctx.Err())
		case err != nil:
			refused = append(refused, bin+": "+err.Error())
		default:
			found = append(found, candidate)
		}
	}
	if len(found) == 0 {
		message := fmt.Sprintf("no PostgreSQL server binaries (%d or newer) on this machine", oldestMajor)
		if len(refused) > 0 {
			message += "; passed over " + strings.Join(refused, "; ")
		}
		return nil, fault.New(fault.NotFound, message, fault.Remedy(remedyInstall))
	}
	slices.SortStableFunc(found, func(a, b installation) int {
		return cmp.Or(cmp.Compare(b.major, a.major), cmp.Compare(b.minor, a.minor))
	})
	return found, nil
}

// candidates are the directories worth a look, each once. What PATH calls postgres may be
// a link: the other programs are beside its target.
func (f finder) candidates() []string {
	var dirs []string
	add := func(dir string) {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range f.path {
		if target, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil {
			add(filepath.Dir(target))
		}
	}
	for _, pattern := range f.patterns {
		matches, _ := filepath.Glob(pattern) // the patterns are well-formed
		for _, match := range matches {
			if target, err := filepath.EvalSymlinks(match); err == nil {
				add(target)
			}
		}
	}
	return dirs
}

// inspect reports whether a directory holds a whole and new enough server: the three programs,
// and the files that initdb makes a cluster from. A copied binary or a wrapper lacks them.
func (f finder) inspect(ctx context.Context, bin string) (installation, error) {
	found := installation{bin: bin}
	for _, name := range []string{"initdb", "pg_ctl", "postgres"} {
		if info, err := os.Stat(found.program(name)); err != nil || !info.Mode().IsRegular() {
			return found, fmt.Errorf("no %s", name)
		}
	}
	version, err := f.ask(ctx, found.program("postgres"), "--version")
	if err != nil {
		return found, fmt.Errorf("postgres --version: %w", err)
	}
	if found.major, found.minor, err = parseVersion(version); err != nil {
		return found, err
	}
	if found.major < oldestMajor {
		return found, fmt.Errorf("is PostgreSQL %d, older than %d", found.major, oldestMajor)
	}
	// --show prints where initdb looks for its files and ends before it makes anything.
	settings, err := f.ask(ctx, found.program("initdb"), "--show", "-D", filepath.Join(os.TempDir(), "servo-pg-unused"))
	if err != nil {
		return found, fmt.Errorf("initdb --show: %w", err)
	}
	for line := range strings.Lines(settings) {
		if share, ok := strings.CutPrefix(strings.TrimSpace(line), "share_path="); ok {
			found.share = share
		}
	}
	if _, err := os.Stat(filepath.Join(found.share, "postgres.bki")); err != nil {
		return found, fmt.Errorf("its share files are missing: %w", err)
	}
	return found, nil
}

// parseVersion reads "postgres (PostgreSQL) 15.18 (Debian …)", also 18beta1 and 17rc1.
func parseVersion(text string) (major, minor int, err error) {
	match := regexp.MustCompile(`\(PostgreSQL\) (\d{1,4})(?:\.(\d{1,4}))?`).FindStringSubmatch(text)
	if match == nil {
		return 0, 0, fmt.Errorf("%q is no PostgreSQL version", strings.TrimSpace(text))
	}
	major, _ = strconv.Atoi(match[1]) // the pattern lets only short numbers through
	minor, _ = strconv.Atoi(match[2]) // "" is 0
	return major, minor, nil
}
