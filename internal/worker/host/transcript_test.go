package host_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"go.arco.dev/servo/internal/worker/host"
)

const replayCommand = "replay-host"

// TestMain also is the supervisor of the hosts of the tests, and a host that replays a transcript.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == host.SupervisorCommand:
		os.Exit(host.Supervise(os.Args[3:]))
	case len(os.Args) > 2 && os.Args[1] == replayCommand:
		os.Exit(replay(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

// entry is one frame of a transcript.
type entry struct {
	Down json.RawMessage `json:"down"`
	Up   json.RawMessage `json:"up"`
}

func transcript(name string) ([]entry, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for line := range strings.Lines(string(data)) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// replay sends the recorded frames of a host, and compares what the worker sends with the record.
func replay(name string) int {
	entries, err := transcript(name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	signal.Ignore(syscall.SIGTERM) // the recorded task ends by the frame
	down, up := bufio.NewReader(os.NewFile(3, "down")), os.NewFile(4, "up")
	for _, e := range entries {
		if e.Up != nil {
			frame := bytes.ReplaceAll(e.Up, []byte(`"cpu": "*"`), []byte(`"cpu": 0.25`))
			_, err := up.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)) //nolint:gosec // short
			if err != nil {
				return 2
			}
			continue
		}
		var prefix [4]byte
		if _, err := io.ReadFull(down, prefix[:]); err != nil {
			return 0 // the test is over
		}
		got := make([]byte, binary.BigEndian.Uint32(prefix[:]))
		if _, err := io.ReadFull(down, got); err != nil {
			return 2
		}
		if normal(got) != normal(e.Down) {
			fmt.Fprintf(os.Stderr, "recorded %s\nreceived %s\n", normal(e.Down), normal(got))
			return 3
		}
	}
	_, _ = io.Copy(io.Discard, down) // the worker ends the host
	return 0
}

func normal(data []byte) string {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err.Error()
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// backend answers requests with the recorded answers, and records the rest.
type backend struct {
	mu       sync.Mutex
	answers  []json.RawMessage
	progress []host.Progress
	lines    []string
}

func (b *backend) Log(_ time.Time, level, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, level+" "+line)
}

func (b *backend) Progress(p host.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.progress = append(b.progress, p)
}

func (b *backend) Answer(context.Context, string, json.RawMessage) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var answer struct {
		Value any           `json:"value"`
		Error *host.Failure `json:"error"`
	}
	if err := json.Unmarshal(b.answers[0], &answer); err != nil {
		return nil, err
	}
	b.answers = b.answers[1:]
	if answer.Error != nil {
		return nil, answer.Error
	}
	return answer.Value, nil
}

// TestTranscripts replays the transcripts of docs/hosts.md: the test binary is the host.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob(filepath.Join("..", "..", "..", "sdk", "transcripts", "*.jsonl"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(names), 5)
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".jsonl"), func(t *testing.T) {
			t.Parallel()
			replayed(t, name)
		})
	}
}

func replayed(t *testing.T, name string) {
	t.Helper()
	entries, err := transcript(name)
	require.NoError(t, err)
	pool, err := host.NewPool(host.Options{Grace: time.Minute})
	require.NoError(t, err)
	defer pool.Close()
	binary, err := os.Executable()
	require.NoError(t, err)
	absolute, err := filepath.Abs(name)
	require.NoError(t, err)
	code := host.Code{Command: []string{binary, replayCommand, absolute}}
	b := &backend{}
	for _, e := range entries {
		if e.Down == nil {
			continue
		}
		var f struct{ Type string }
		require.NoError(t, json.Unmarshal(e.Down, &f), "%s", e.Down)
		if f.Type == "answer" {
			b.answers = append(b.answers, e.Down)
		}
	}
	for i, e := range entries {
		var f struct {
			host.Run

			Type, Task string
		}
		if e.Down == nil || json.Unmarshal(e.Down, &f) != nil {
			continue
		}
		switch f.Type {
		case "describe":
			described, err := pool.Manifest(t.Context(), code, b)
			require.NoError(t, err)
			require.Empty(t, described.Problems)
			require.Contains(t, string(described.Manifest), "shop/orders")
			require.Contains(t, described.Places, "shop/orders")
		case "run":
			ctx, cancel := context.WithCancel(t.Context())
			if strings.Contains(string(entries[i+1].Down), `"cancel"`) {
				cancel()
				// A cancelled context starts no host: a warm one is needed.
				require.NoError(t, pool.Warm(t.Context(), code, 1))
			}
			outcome, usage, err := pool.Execute(ctx, code, f.Task, &f.Run, b, nil)
			compareEnd(t, entries[i+1:], outcome, err)
			require.InDelta(t, 0.25, usage.CPUSeconds, 0)
			cancel()
		}
	}
}

// compareEnd compares the end of a task with the recorded one.
func compareEnd(t *testing.T, entries []entry, outcome host.Outcome, err error) {
	t.Helper()
	for _, e := range entries {
		var f struct {
			Type   string
			Result json.RawMessage
			Next   *string
			Error  *host.Failure
		}
		if e.Up == nil {
			continue
		}
		require.NoError(t, json.Unmarshal(e.Up, &f))
		switch f.Type {
		case "result":
			require.NoError(t, err)
			require.JSONEq(t, string(f.Result), string(outcome.Result))
			return
		case "yield":
			require.NoError(t, err)
			require.True(t, outcome.Yielded)
			require.Equal(t, f.Next, outcome.Next)
			return
		case "error":
			var failure *host.Failure
			require.ErrorAs(t, err, &failure)
			require.Equal(t, f.Error, failure)
			return
		}
	}
	t.Fatal("the transcript has no end of the task")
}

// TestHosts covers the ends of hosts that need no interpreter.
func TestHosts(t *testing.T) {
	t.Parallel()
	sh := func(script string) host.Code {
		return host.Code{Command: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}}
	}
	pool := func(t *testing.T, options host.Options) *host.Pool {
		t.Helper()
		p, err := host.NewPool(options)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		return p
	}
	failure := func(t *testing.T, err error) *host.Failure {
		t.Helper()
		var f *host.Failure
		require.ErrorAs(t, err, &f)
		return f
	}
	t.Run("a host that ends before it is ready reports its last words", func(t *testing.T) {
		t.Parallel()
		_, err := pool(t, host.Options{}).Assets(t.Context(), sh("echo broken >&2; exit 4"))
		f := failure(t, err)
		require.Equal(t, "IMPORT_ERROR", f.Class)
		require.Contains(t, f.Message, "exit code 4")
		require.Equal(t, "broken\n", f.Details["stderr"])
	})
	t.Run("a program that does not exist", func(t *testing.T) {
		t.Parallel()
		_, err := pool(t, host.Options{}).Assets(t.Context(), host.Code{Command: []string{"/nonexistent/python"}})
		require.Contains(t, failure(t, err).Message, "cannot be started")
	})
	t.Run("a host that is not ready in time is killed with its children", func(t *testing.T) {
		t.Parallel()
		mark := filepath.Join(t.TempDir(), "alive")
		_, err := pool(t, host.Options{StartTimeout: time.Second}).Assets(t.Context(), sh("setsid sh -c 'echo $$ > "+mark+"; sleep 600' & sleep 600"))
		require.Contains(t, failure(t, err).Message, "was not imported within")
		data, err := os.ReadFile(mark)
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
		require.NoError(t, err)
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	})
	t.Run("another version of the protocol is refused", func(t *testing.T) {
		t.Parallel()
		frame := `{"type":"hello","protocol":9,"sdk":"x 9"}`
		_, err := pool(t, host.Options{}).Assets(t.Context(), sh(fmt.Sprintf(`printf '\000\000\000\%03o%%s' '%s' >&4; sleep 600`, len(frame), frame)))
		require.Contains(t, failure(t, err).Message, "speaks version 9")
	})
	t.Run("an invalid frame ends the host", func(t *testing.T) {
		t.Parallel()
		_, err := pool(t, host.Options{}).Assets(t.Context(), sh(`printf 'HTTP/1.1 200' >&4; sleep 600`))
		require.Contains(t, failure(t, err).Message, "invalid frame")
	})
	t.Run("a closed pool starts nothing", func(t *testing.T) {
		t.Parallel()
		p := pool(t, host.Options{})
		p.Close()
		_, err := p.Assets(t.Context(), sh("sleep 600"))
		require.ErrorContains(t, err, "stopping")
	})
}
