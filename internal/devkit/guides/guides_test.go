package guides

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/devpg"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/alert"
)

// The addresses and the database that the pages name.
const (
	pageHTTP     = "127.0.0.1:8080"
	pageGRPC     = "127.0.0.1:8081"
	pageHTTP2    = "127.0.0.1:8090" // of a second server
	pageGRPC2    = "127.0.0.1:8091"
	pageEndpoint = "127.0.0.1:9000"  // of an http asset or a webhook, which servo dev calls
	pageReceiver = "hooks.corp:9000" // of a webhook in a private network
	pageNetwork  = "10.0.0.0/8"      // that network
	pageDatabase = "postgres://servo@localhost/servo"
)

// notTyped are the blocks that no test runs, by page: the first line of each. An author who
// adds one lists it here as unchecked.
var notTyped = map[string][]string{ //nolint:gochecknoglobals // a table
	"README.md":                     {"make dev      # PostgreSQL, a server and examples, on this machine"},
	"docs/guides/backup.md":         {"cat >> base/postgresql.conf <<'CONF'"},
	"docs/guides/operate.md":        {"createuser --createrole --no-inherit servo"},
	"docs/guides/write-an-asset.md": {"servo plan --go ./cmd/worker"}, // the worker of a project
}

// backupPage copies one cluster into another.
const backupPage = "docs/guides/backup.md"

const runbookIndex = "docs/runbooks/README.md"

// ownServers are the pages that start their servers themselves.
var ownServers = []string{"docs/guides/operate.md", "docs/runbooks/scheduler-is-stuck.md"} //nolint:gochecknoglobals // a table

// devPages are the pages that need servo dev with its workers: they call this machine.
var devPages = []string{"docs/guides/run-any-command.md", "docs/guides/subscribe.md"} //nolint:gochecknoglobals // a table

// TestGuides follows every page as a reader would.
func TestGuides(t *testing.T) {
	t.Parallel()
	pages := append(pagesUnder(t, "docs/guides", "docs/runbooks"), "docs/manifest.md")
	require.Subset(t, pages, slices.Concat(ownServers, devPages))
	for _, name := range pages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			around := serverAround
			switch {
			case name == backupPage:
				around = clustersAround
			case slices.Contains(ownServers, name):
				around = databaseAround
			case slices.Contains(devPages, name):
				around = devAround
			}
			follow(t, name, around(t))
		})
	}
}

// pagesUnder are the pages in some directories, but for the index of the runbooks, which has
// nothing to type.
func pagesUnder(t *testing.T, dirs ...string) (names []string) {
	t.Helper()
	for _, dir := range dirs {
		pages, err := filepath.Glob(filepath.Join(root(t), dir, "*.md"))
		require.NoError(t, err)
		require.NotEmpty(t, pages, dir)
		for _, page := range pages {
			name, err := filepath.Rel(root(t), page)
			require.NoError(t, err)
			if name != runbookIndex {
				names = append(names, name)
			}
		}
	}
	return names
}

// TestReadme follows the README after `make dev`, which is servo dev.
func TestReadme(t *testing.T) {
	t.Parallel()
	s := newSurroundings(t)
	require.NoError(t, os.Remove(filepath.Join(s.dir, "servo")))
	require.NoError(t, os.Symlink(program(t), filepath.Join(s.dir, "servo"))) // the reader is in the clone, after make
	log := s.startDev(t, "./servo")
	follow(t, "README.md", s)

	// What make dev prints is promised after it. Addresses of one's own are named in the
	// commands to try; the default ones are not.
	found := blocksOf(t, "README.md")
	at := slices.IndexFunc(found, func(b block) bool { return b.kind == "text" })
	output := strings.ReplaceAll(s.read(filepath.Dir(log), filepath.Base(log)), " --server "+pageGRPC, "")
	require.Empty(t, compare("starting PostgreSQL…\n"+found[at].text, output))
}

// TestNotTyped compares the list of unchecked blocks.
func TestNotTyped(t *testing.T) {
	t.Parallel()
	found := map[string][]string{}
	for _, name := range append(pagesUnder(t, "docs/guides", "docs/runbooks"), "README.md") {
		for _, b := range blocksOf(t, name) {
			if b.kind == "sh" && b.word == byHand {
				first, _, _ := strings.Cut(b.text, "\n")
				found[name] = append(found[name], first)
			}
		}
	}
	require.Equal(t, notTyped, found)
}

// TestRunbookIndex: an operator on call finds the page by the alert.
func TestRunbookIndex(t *testing.T) {
	t.Parallel()
	require.Empty(t, blocksOf(t, runbookIndex), "no test would run a block there")
	text, err := os.ReadFile(filepath.Join(root(t), runbookIndex))
	require.NoError(t, err)
	for _, page := range pagesUnder(t, "docs/runbooks") {
		require.Contains(t, string(text), "]("+filepath.Base(page)+")")
	}
	for _, kind := range alert.Kinds() {
		require.Contains(t, string(text), "| `"+string(kind)+"` |")
	}
}

func blocksOf(t *testing.T, page string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), page))
	require.NoError(t, err)
	found, err := blocks(string(text))
	require.NoError(t, err, page)
	return found
}

// surroundings are what a page takes for granted.
type surroundings struct {
	dir        string // where the reader is
	http, grpc string
	real       map[string]string // what stands for what the pages name
	env        []string
}

// newSurroundings is a directory with a clone of the repository in it, named servo, and
// the program on the PATH.
func newSurroundings(t *testing.T) *surroundings {
	t.Helper()
	s := &surroundings{dir: t.TempDir(), http: free(t), grpc: free(t)}
	s.real = map[string]string{pageHTTP: s.http, pageGRPC: s.grpc, pageHTTP2: free(t), pageGRPC2: free(t), pageEndpoint: free(t)}
	require.NoError(t, os.Symlink(root(t), filepath.Join(s.dir, "servo")))
	home := t.TempDir()
	s.env = []string{
		"PATH=" + strings.Join([]string{filepath.Dir(program(t)), os.Getenv("PATH"), psqlDir(t)}, string(os.PathListSeparator)),
		"HOME=" + home, "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8", "TZ=UTC",
		// go mod tidy looks at the tests of what it finds: that may be more than was built here
		"GOPROXY=" + goEnv(t, "GOPROXY"), "GOSUMDB=" + goEnv(t, "GOSUMDB"), "GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off",
		"GOPATH=" + goEnv(t, "GOPATH"), "GOMODCACHE=" + goEnv(t, "GOMODCACHE"), "GOCACHE=" + goEnv(t, "GOCACHE"),
	}
	s.env = append(s.env, "SERVO_SERVER="+s.grpc)
	return s
}

// psqlDir is where psql is: beside the PostgreSQL that the tests run, which is not always on
// the PATH. The doctor knows it.
func psqlDir(t *testing.T) string {
	t.Helper()
	output, _ := exec.Command(program(t), "doctor").Output() // whatever else is wrong
	for line := range strings.Lines(string(output)) {
		if _, dir, found := strings.Cut(strings.TrimSpace(line), " in "); found && strings.Contains(line, "PostgreSQL for servo dev") {
			return dir
		}
	}
	require.FailNow(t, "no PostgreSQL", "%s", output)
	return ""
}

// startDev starts servo dev and gives the file of what it prints.
func (s *surroundings) startDev(t *testing.T, servo string) (log string) {
	t.Helper()
	data, err := os.MkdirTemp("", "servo-guides-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	require.NoError(t, os.Chmod(data, 0o755)) // the user that PostgreSQL runs as must pass
	log = filepath.Join(t.TempDir(), "dev.log")
	output, err := os.Create(log)
	require.NoError(t, err)
	defer output.Close()
	start(t, s.dir, s.env, output, servo, "dev", "--data-dir", filepath.Join(data, "dev"), "--http", s.http, "--grpc", s.grpc).
		waitForLine(t, log, "  "+servo+" runs trigger ")
	return log
}

func devAround(t *testing.T) *surroundings {
	t.Helper()
	s := newSurroundings(t)
	s.startDev(t, "servo")
	return s
}

// privateAddress is an address of this machine that is not loopback.
func privateAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	require.FailNow(t, "this machine has no address but loopback")
	return ""
}

// emptyDatabase is one of a cluster of its own: the doctor reports long transactions in other databases
// too, which another page or test may have open.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	server, err := devpg.Start(t.Context(), devpg.Options{Memory: true, Settings: servotest.FastSettings()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) }) // the test's context is over by then
	output, err := exec.CommandContext(t.Context(), server.Program("createdb"), "--maintenance-db", server.URL("postgres"), "--template", "template0", "servo").CombinedOutput()
	require.NoError(t, err, "%s", output)
	return server.URL("servo")
}

func databaseAround(t *testing.T) *surroundings {
	t.Helper()
	s := newSurroundings(t)
	s.real[pageDatabase] = emptyDatabase(t)
	address := privateAddress(t)
	s.real[pageReceiver], s.real[pageNetwork] = freeAt(t, address), address+"/32"
	return s
}

// clustersAround are two clusters with nothing in them: one to back up, one to restore into.
func clustersAround(t *testing.T) *surroundings {
	t.Helper()
	s := newSurroundings(t)
	for _, host := range []string{"old.corp", "new.corp"} {
		server, err := devpg.Start(t.Context(), devpg.Options{Memory: true, Settings: map[string]string{"fsync": "off"}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) }) // the test's context is over by then
		for _, database := range []string{"postgres", "servo"} {
			there, err := url.Parse(server.URL(database))
			require.NoError(t, err)
			s.real["postgres://postgres@"+host+"/"+database] = there.String()
			for _, role := range []string{"app", "backup"} {
				there.User = url.User(role)
				s.real["postgres://"+role+"@"+host+"/"+database] = there.String()
			}
		}
	}
	return s
}

func serverAround(t *testing.T) *surroundings {
	t.Helper()
	s := newSurroundings(t)
	database := servotest.DB(t).URL
	log := filepath.Join(t.TempDir(), "server.log")
	output, err := os.Create(log)
	require.NoError(t, err)
	defer output.Close()
	start(t, s.dir, s.env, output, "servo", "server", "--open", "--database", database, "--http", s.http, "--grpc", s.grpc,
		"--blob-url", "file://"+filepath.Join(s.dir, "blobs")).
		waitForLine(t, log, "servo server ")
	return s
}

// follow runs the commands of a page.
func follow(t *testing.T, page string, s *surroundings) {
	t.Helper()
	found := blocksOf(t, page)
	out := t.TempDir()
	script := s.script(t, out, found)
	output, err := os.Create(filepath.Join(out, "bash.out"))
	require.NoError(t, err)
	defer output.Close()
	p := start(t, s.dir, s.env, output, "bash", script)
	failed := p.wait(t)
	if failed != nil {
		at, _ := strconv.Atoi(strings.TrimSpace(s.read(out, "at")))
		require.FailNow(t, "a command failed", "%s:%d: %v\n\n%s\nsaid:\n%s%s%s", page, found[at].line, failed, found[at].text,
			s.read(out, fmt.Sprintf("%d.out", at)), s.read(out, "bash.out"), s.terminals(out, found))
	}
	for i := range found {
		if testing.Verbose() && found[i].typed() { // for the author of a page
			t.Logf("%s:%d:\n%s\n%s", page, found[i].line, found[i].text, s.read(out, fmt.Sprintf("%d.out", i)))
		}
		if i == 0 || !found[i].promised(found[i-1]) {
			continue
		}
		if wrong := compare(found[i].text, s.read(out, fmt.Sprintf("%d.out", i-1))); wrong != "" {
			t.Errorf("%s:%d: not what came out\n\n%s\n%s%s", page, found[i].line, found[i-1].text, wrong, s.terminals(out, found))
		}
	}
}

// terminals is the output of the other terminals, to find out why a page failed.
func (s *surroundings) terminals(out string, found []block) string {
	var text strings.Builder
	for i, b := range found {
		if b.terminal() != "" {
			fmt.Fprintf(&text, "\nin terminal %s, %s:\n%s", b.terminal(), strings.TrimSpace(b.text), s.read(out, fmt.Sprintf("%d.out", i)))
		}
	}
	return text.String()
}

// prelude ends what runs in other terminals, each a process group of its own: when something
// else is typed there, and at the end.
const prelude = `set -euo pipefail
declare -A terminals=()
leave() {
  local group=${terminals[$1]:-}
  [[ -n $group ]] && kill -INT -- "-$group" 2>/dev/null || return 0
  for _ in {1..200}; do
    kill -0 -- "-$group" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL -- "-$group" 2>/dev/null || true
}
trap 'for name in "${!terminals[@]}"; do leave "$name"; done' EXIT
trap 'exit 1' TERM
`

// script is the whole page for bash: one shell, so that directories and variables carry
// over from block to block.
func (s *surroundings) script(t *testing.T, out string, found []block) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("out=" + quote(out) + "\n" + prelude)
	for i, b := range found {
		fmt.Fprintf(&text, "echo %d >\"$out/at\"\n", i)
		switch {
		case b.file() != "":
			require.NoError(t, os.WriteFile(filepath.Join(out, fmt.Sprintf("%d.file", i)), []byte(s.typed(b.text)), 0o600))
			fmt.Fprintf(&text, "mkdir -p \"$(dirname %s)\"\ncat \"$out/%d.file\" >%s\n", quote(b.file()), i, quote(b.file()))
		case b.terminal() != "":
			fmt.Fprintf(&text, "leave %s\nset -m\n(\n%s) >\"$out/%d.out\" 2>&1 &\nterminals[%s]=$!\nset +m\n",
				b.terminal(), s.typed(b.text), i, b.terminal())
		case b.typed():
			fmt.Fprintf(&text, "{\n%s} >\"$out/%d.out\" 2>&1\n", s.typed(b.text), i)
		}
	}
	name := filepath.Join(out, "page.sh")
	require.NoError(t, os.WriteFile(name, []byte(text.String()), 0o600))
	return name
}

// typed is what is typed where a page shows text.
func (s *surroundings) typed(text string) string {
	for named, there := range s.real {
		text = strings.ReplaceAll(text, named, there)
	}
	return text
}

// read reads what came out, in the words of the pages.
func (s *surroundings) read(out, name string) string {
	data, _ := os.ReadFile(filepath.Join(out, name)) // nothing if it never came to that
	text := string(data)
	for named, there := range s.real {
		text = strings.ReplaceAll(text, there, named)
	}
	return text
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	return dir
}

// free is an address without a listener.
func free(t *testing.T) string {
	t.Helper()
	return freeAt(t, "127.0.0.1")
}

// freeAt is a free port of an address.
func freeAt(t *testing.T, address string) string {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0")) //nolint:noctx // listening does not wait
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	value, err := exec.Command("go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(value))
}

// built is the program, built once for all pages.
var built struct { //nolint:gochecknoglobals // one program for a whole test binary
	once   sync.Once
	dir    string
	output []byte
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "servo-guides-"); built.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", filepath.Join(built.dir, "servo"), "./cmd/servo")
		build.Dir = root(t)
		built.output, built.err = build.CombinedOutput()
	})
	require.NoError(t, built.err, "%s", built.output)
	return filepath.Join(built.dir, "servo")
}
