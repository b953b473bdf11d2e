package python_test

import (
	"archive/zip"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"go.arco.dev/servo/internal/worker/host"
	"go.arco.dev/servo/internal/worker/python"
)

// TestMain also is the supervisor of the hosts of the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == host.SupervisorCommand {
		os.Exit(host.Supervise(os.Args[3:]))
	}
	goleak.VerifyTestMain(m)
}

// silent is a backend that ignores everything.
type silent struct{}

func (silent) Log(time.Time, string, string) {}
func (silent) Progress(host.Progress)        {}
func (silent) Answer(context.Context, string, json.RawMessage) (any, error) {
	return nil, nil //nolint:nilnil // no value
}

// write writes the files of a project.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

const noop = "from servo import asset\n\n@asset('a/noop')\ndef noop() -> None: ...\n"

// open opens a project and a pool.
func open(t testing.TB, dir string, options host.Options) (*python.Project, *host.Pool) {
	t.Helper()
	project, err := python.Open(python.Project{Dir: dir})
	require.NoError(t, err)
	pool, err := host.NewPool(options)
	require.NoError(t, err)
	t.Cleanup(func() {
		pool.Close()
		project.Close()
	})
	return project, pool
}

// BenchmarkNoop measures what a warm host adds to a task: a Go handler that does nothing takes less
// than a microsecond. It reports the median and, with 8 hosts, tasks per second.
func BenchmarkNoop(b *testing.B) {
	for _, hosts := range []int{1, 8} {
		b.Run(strconv.Itoa(hosts)+"-hosts", func(b *testing.B) {
			project, pool := open(b, write(b, map[string]string{"assets.py": noop}), host.Options{Hosts: hosts, TasksPerHost: 1 << 30})
			code := project.Host("bench")
			require.NoError(b, pool.Warm(b.Context(), code, hosts))
			var mu sync.Mutex
			var took []time.Duration
			work := make(chan struct{})
			var running sync.WaitGroup
			for range hosts {
				running.Go(func() {
					for range work {
						started := time.Now()
						_, _, err := pool.Execute(context.Background(), code, "t", &host.Run{Asset: "a/noop", Parameters: json.RawMessage("{}")}, silent{}, nil)
						lasted := time.Since(started)
						if err != nil {
							b.Error(err)
						}
						mu.Lock()
						took = append(took, lasted)
						mu.Unlock()
					}
				})
			}
			for b.Loop() {
				work <- struct{}{}
			}
			close(work)
			running.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

// build packages a project, and returns the archive and its digest.
func build(t *testing.T, dir string) (archive, digest string) {
	t.Helper()
	project, _ := open(t, dir, host.Options{})
	archive = filepath.Join(t.TempDir(), "code.zip")
	file, err := os.Create(archive)
	require.NoError(t, err)
	digest, _, err = project.Build(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return archive, digest
}

func TestArchives(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"assets.py": noop, "data/x.csv": "a,b\n", ".env": "SECRET=1", ".venv/pyvenv.cfg": "", ".venv/lib/x.py": "import servo", "__pycache__/assets.pyc": "x",
	}
	t.Run("the same files result in the same archive, without hidden files and environments", func(t *testing.T) {
		t.Parallel()
		one, digest := build(t, write(t, files))
		other, same := build(t, write(t, files))
		require.Equal(t, digest, same)
		first, err := os.ReadFile(one)
		require.NoError(t, err)
		second, err := os.ReadFile(other)
		require.NoError(t, err)
		require.Equal(t, first, second)
		reader, err := zip.OpenReader(one)
		require.NoError(t, err)
		defer reader.Close() //nolint:errcheck // it is only read
		var names []string
		for _, f := range reader.File {
			names = append(names, f.Name)
		}
		require.Equal(t, []string{"assets.py", "data/x.csv"}, names)
	})
	t.Run("an archive is installed once, and its assets name its digest", func(t *testing.T) {
		t.Parallel()
		archive, digest := build(t, write(t, files))
		cache := t.TempDir()
		dir, found, err := python.Install(t.Context(), archive, cache, "python3", io.Discard)
		require.NoError(t, err)
		require.Equal(t, digest, found)
		mark := filepath.Join(dir, "assets.py")
		before, err := os.Stat(mark)
		require.NoError(t, err)
		project, err := python.Open(python.Project{Dir: archive, Cache: cache})
		require.NoError(t, err)
		defer project.Close()
		after, err := os.Stat(mark)
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after))
		require.Equal(t, dir, project.Dir)
		pool, err := host.NewPool(host.Options{})
		require.NoError(t, err)
		defer pool.Close()
		manifest, err := project.Manifest(t.Context(), pool, io.Discard)
		require.NoError(t, err)
		require.Contains(t, string(manifest), digest)
		same, err := project.Digest()
		require.NoError(t, err)
		require.Equal(t, digest, same, "a worker declares the digest of the installed code")
	})
	t.Run("an archive that was changed is refused", func(t *testing.T) {
		t.Parallel()
		archive, digest := build(t, write(t, files))
		changed := filepath.Join(t.TempDir(), "changed.zip")
		file, err := os.Create(changed)
		require.NoError(t, err)
		w := zip.NewWriter(file)
		entry, err := w.Create("assets.py")
		require.NoError(t, err)
		_, err = entry.Write([]byte("import os"))
		require.NoError(t, err)
		require.NoError(t, w.SetComment("servo code "+digest))
		require.NoError(t, w.Close())
		require.NoError(t, file.Close())
		_, _, err = python.Install(t.Context(), changed, t.TempDir(), "python3", io.Discard)
		require.ErrorContains(t, err, "it should be "+digest)
		_, _, err = python.Install(t.Context(), filepath.Join(filepath.Dir(archive), "none.zip"), t.TempDir(), "python3", io.Discard)
		require.ErrorContains(t, err, "is no readable archive")
	})
	t.Run("a file outside of the directory is refused", func(t *testing.T) {
		t.Parallel()
		name := filepath.Join(t.TempDir(), "slip.zip")
		file, err := os.Create(name)
		require.NoError(t, err)
		w := zip.NewWriter(file)
		_, err = w.Create("../evil.py")
		require.NoError(t, err)
		require.NoError(t, w.SetComment("servo code sha256:x"))
		require.NoError(t, w.Close())
		require.NoError(t, file.Close())
		_, _, err = python.Install(t.Context(), name, t.TempDir(), "python3", io.Discard)
		require.Error(t, err)
	})
	t.Run("a requirement without a hash is refused", func(t *testing.T) {
		t.Parallel()
		project, _ := open(t, write(t, map[string]string{"assets.py": noop, "requirements.txt": "# locked\nrequests==2.0\n"}), host.Options{})
		_, _, err := project.Build(io.Discard)
		require.ErrorContains(t, err, "requests==2.0")
	})
}
