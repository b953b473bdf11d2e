package commit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/data/blob"
	"go.arco.dev/servo/internal/data/commit"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/quality"
)

var errKilled = errors.New("killed")

func directory(t *testing.T) *blob.Store {
	t.Helper()
	s, err := blob.Open(t.Context(), "file://"+t.TempDir(), blob.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func attempt(token int64) output.Attempt {
	return output.Attempt{Tenant: "acme", Workspace: "prod", Asset: "gold/revenue", Run: "run", Task: "task", Attempt: int32(token), Token: token}
}

// local writes an output whose content names its token.
func local(t *testing.T, token int64) commit.Local {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "day=1"), 0o700))
	line := fmt.Sprintf("{\"token\":%d}\n", token)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.jsonl"), []byte(strings.Repeat(line, 10_000)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "day=1", "b.jsonl"), []byte(line), 0o600))
	return commit.Local{Dir: dir, Format: quality.JSONL, Rows: 10_001, Metadata: output.Metadata{Gate: quality.Allow}}
}

func TestCommit(t *testing.T) {
	t.Parallel()

	t.Run("a committed version is read back whole", func(t *testing.T) {
		t.Parallel()
		store := directory(t)
		written, err := (&commit.Writer{Store: store}).Write(t.Context(), attempt(1), local(t, 1))
		require.NoError(t, err)
		read, metadata, err := commit.Read(t.Context(), store, attempt(1))
		require.NoError(t, err)
		require.Equal(t, written, read)
		require.Equal(t, quality.Allow, metadata.Gate)
		paths, err := commit.Fetch(t.Context(), store, read, t.TempDir())
		require.NoError(t, err)
		require.Len(t, paths, 2)
		content, err := os.ReadFile(paths[1])
		require.NoError(t, err)
		require.JSONEq(t, `{"token":1}`, string(content))
	})

	t.Run("equal files have equal digests, by any writer", func(t *testing.T) {
		t.Parallel()
		store := directory(t)
		first, err := (&commit.Writer{Store: store}).Write(t.Context(), attempt(1), local(t, 1))
		require.NoError(t, err)
		second, err := (&commit.Writer{Store: store}).Write(t.Context(), attempt(2), local(t, 1))
		require.NoError(t, err)
		require.Equal(t, first.Digest, second.Digest)
		require.NotEqual(t, first.Prefix(), second.Prefix())
	})

	t.Run("hostile outputs are refused before anything is uploaded", func(t *testing.T) {
		t.Parallel()
		for name, prepare := range map[string]func(dir string) error{
			"no files":          func(string) error { return nil },
			"a link":            func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "a")) },
			"a marker":          func(dir string) error { return os.WriteFile(filepath.Join(dir, "_commit.json"), nil, 0o600) },
			"a hidden file":     func(dir string) error { return os.WriteFile(filepath.Join(dir, ".a"), nil, 0o600) },
			"a name with space": func(dir string) error { return os.WriteFile(filepath.Join(dir, "a b"), nil, 0o600) },
		} {
			dir, store := t.TempDir(), directory(t)
			require.NoError(t, prepare(dir))
			_, err := (&commit.Writer{Store: store}).Write(t.Context(), attempt(1), commit.Local{Dir: dir, Format: quality.Files})
			require.True(t, fault.Is(err, fault.InvalidArgument), "%s: %v", name, err)
			for range store.List(t.Context(), "") {
				t.Fatalf("%s: an object was written", name)
			}
		}
	})

	t.Run("a file over the size limit is refused", func(t *testing.T) {
		t.Parallel()
		store, err := blob.Open(t.Context(), "file://"+t.TempDir(), blob.Options{MaxObject: 1000})
		require.NoError(t, err)
		_, err = (&commit.Writer{Store: store}).Write(t.Context(), attempt(1), local(t, 1))
		require.True(t, fault.Is(err, fault.LimitExceeded), "%v", err)
		_, _, err = commit.Read(t.Context(), store, attempt(1))
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
	})

	t.Run("changed objects are found", func(t *testing.T) {
		t.Parallel()
		store := directory(t)
		m, err := (&commit.Writer{Store: store}).Write(t.Context(), attempt(1), local(t, 1))
		require.NoError(t, err)
		content, err := store.Get(t.Context(), m.Prefix()+"day=1/b.jsonl", 1<<20)
		require.NoError(t, err)
		_, err = store.Put(t.Context(), m.Prefix()+"day=1/b.jsonl", []byte(strings.ReplaceAll(string(content), "1", "2"))) // same size
		require.NoError(t, err)
		_, err = commit.Fetch(t.Context(), store, m, t.TempDir())
		require.ErrorContains(t, err, "does not match its digest")
		require.NoError(t, store.Delete(t.Context(), m.Prefix()+"a.jsonl"))
		_, _, err = commit.Read(t.Context(), store, attempt(1))
		require.ErrorContains(t, err, "missing or has another size")
		// A marker that was copied from another attempt.
		data, err := store.Get(t.Context(), m.Prefix()+output.MarkerName, 1<<20)
		require.NoError(t, err)
		_, err = store.Put(t.Context(), attempt(2).Prefix()+output.MarkerName, data)
		require.NoError(t, err)
		_, _, err = commit.Read(t.Context(), store, attempt(2))
		require.ErrorContains(t, err, "belongs to attempt task with token 1")
	})
}

// kills is how often a writer is killed at each step.
const kills = 30

// TestKilled stops a writer at each step of the protocol. The version before it stays readable, a
// partial version is never readable, and another attempt commits.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, step := range []commit.Step{commit.Uploading, commit.FilesWritten, commit.MetadataThere, commit.Committed} {
		t.Run(string(step), func(t *testing.T) {
			t.Parallel()
			store := directory(t)
			before, err := (&commit.Writer{Store: store}).Write(t.Context(), attempt(1), local(t, 1))
			require.NoError(t, err)
			random := rand.New(rand.NewPCG(7, uint64(len(step))))
			for i := range kills {
				killed, repeat := attempt(int64(2+2*i)), attempt(int64(3+2*i))
				when := random.IntN(3)
				reached := 0
				writer := &commit.Writer{Store: store, At: func(at commit.Step) error {
					if at == step {
						if reached++; reached > when || step != commit.Uploading {
							return errKilled
						}
					}
					return nil
				}}
				_, err := writer.Write(t.Context(), killed, local(t, killed.Token))
				require.ErrorIs(t, err, errKilled)
				_, _, err = commit.Read(t.Context(), store, killed)
				if step == commit.Committed {
					require.NoError(t, err, "the marker is there; only the report decides")
				} else {
					require.True(t, fault.Is(err, fault.NotFound), "%v", err)
				}
				old, _, err := commit.Read(t.Context(), store, attempt(1))
				require.NoError(t, err)
				require.Equal(t, before, old)
				_, err = (&commit.Writer{Store: store}).Write(t.Context(), repeat, local(t, repeat.Token))
				require.NoError(t, err)
				_, err = commit.Discard(t.Context(), store, killed)
				require.NoError(t, err)
				for o := range store.List(t.Context(), killed.Prefix()) {
					t.Fatalf("orphan %s", o.Path)
				}
				_, _, err = commit.Read(t.Context(), store, repeat)
				require.NoError(t, err, "only the files of the killed attempt are deleted")
				_, err = commit.Discard(t.Context(), store, repeat)
				require.NoError(t, err)
			}
		})
	}
}

// TestCut breaks the connection to an object store at random requests.
func TestCut(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	var left atomic.Int64
	left.Store(1 << 40)
	backend := gofakes3.New(s3mem.New(), gofakes3.WithAutoBucket(true)).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if left.Add(-1) < 0 {
			_, _ = io.CopyN(io.Discard, r.Body, 1000)
			if c, ok := w.(http.Hijacker); ok {
				if conn, _, err := c.Hijack(); err == nil {
					if tcp, ok := conn.(*net.TCPConn); ok {
						_ = tcp.SetLinger(0)
					}
					_ = conn.Close()
				}
			}
			return
		}
		backend.ServeHTTP(w, r)
	}))
	defer server.Close()
	store, err := blob.Open(t.Context(), "s3://outputs?region=us-east-1&use_path_style=true&endpoint="+server.URL, blob.Options{})
	require.NoError(t, err)
	defer func() { _ = store.Close() }()
	before, err := (&commit.Writer{Store: store}).Write(t.Context(), attempt(1), local(t, 1))
	require.NoError(t, err)
	// An upload makes four requests: the connection is cut before each of them.
	for i := range 4 {
		cut := attempt(int64(10 + i))
		left.Store(int64(i))
		ctx, cancel := context.WithCancel(t.Context())
		writer := &commit.Writer{Store: store}
		done := make(chan error, 1)
		go func() {
			_, err := writer.Write(ctx, cut, local(t, cut.Token))
			done <- err
		}()
		require.Error(t, <-done, "after %d requests", i)
		cancel()
		left.Store(1 << 40)
		_, _, err := commit.Read(t.Context(), store, cut)
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
		old, _, err := commit.Read(t.Context(), store, attempt(1))
		require.NoError(t, err)
		require.Equal(t, before, old)
		_, err = commit.Discard(t.Context(), store, cut)
		require.NoError(t, err)
	}
}
