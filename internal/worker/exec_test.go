//go:build unix

package worker_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/worker"
)

// shell makes a task that runs a script.
func shell(script string, change ...func(*servov1.Lease)) func(*servov1.Lease) {
	return func(l *servov1.Lease) {
		l.Code = &servov1.Code{Kind: &servov1.Code_Exec{Exec: &servov1.ExecCode{
			Command: []string{"sh", "-c", script}, Env: map[string]string{"GREETING": "hello", "SERVO_TENANT": "forged"},
		}}}
		for _, c := range change {
			c(l)
		}
	}
}

func execs(c *worker.Options) {
	c.Executors = []worker.Executor{&worker.Exec{}}
	c.HeartbeatEvery = 20 * time.Millisecond
}

func TestExec(t *testing.T) {
	t.Parallel()

	one := func(t *testing.T, change func(*servov1.Lease)) *fakeLease {
		t.Helper()
		b := start(t, nil, execs)
		id := b.add(1, "gold/report", change)[0]
		b.ended(t, id)
		require.NoError(t, b.stopped())
		return b.lease(id)
	}

	t.Run("a command finds its task on stdin and in its environment, and leaves a result", func(t *testing.T) {
		t.Parallel()
		got := one(t, shell(`
			printf '{"env":"%s","seen":' "$GREETING $SERVO_TENANT $SERVO_ASSET $SERVO_PARTITION $SERVO_PIPELINE $SERVO_CURSOR $SERVO_ATTEMPT $SERVO_FENCING_TOKEN" > "$SERVO_RESULT"
			cat >> "$SERVO_RESULT"
			printf '}' >> "$SERVO_RESULT"`, func(l *servov1.Lease) {
			l.Partition, l.Cursor, l.Attempt, l.FencingToken = "eu", "page-1", 3, 41
			l.Parameters, _ = structpb.NewStruct(map[string]any{"region": "eu"})
			l.Upstream = []*servov1.UpstreamResult{{Run: "earlier", Task: "that", Asset: "bronze/orders", Partition: "eu", Result: structpb.NewNumberValue(7)}}
		}))
		require.Equal(t, "Complete", got.state, got.failure)
		result, ok := got.result.AsInterface().(map[string]any)
		require.True(t, ok)
		require.Equal(t, "hello acme gold/report eu daily page-1 3 41", result["env"])
		require.Equal(t, map[string]any{
			"tenant": "acme", "run": got.lease.GetRun(), "task": got.lease.GetTask(), "attempt": 3.0, "fencing_token": 41.0, "asset": "gold/report", "partition": "eu",
			"pipeline": "daily", "parameters": map[string]any{"region": "eu"}, "cursor": "page-1",
			"upstream": []any{map[string]any{"run": "earlier", "task": "that", "asset": "bronze/orders", "partition": "eu", "result": 7.0}},
			"config":   "", "trigger_type": "", "slot": nil, "interval": nil,
		}, result["seen"])
	})

	t.Run("a command finds the partitions of a range", func(t *testing.T) {
		t.Parallel()
		got := one(t, shell(`
			printf '{"env":"%s","seen":' "$SERVO_PARTITION_FIRST $SERVO_PARTITION_LAST" > "$SERVO_RESULT"
			cat >> "$SERVO_RESULT"
			printf '}' >> "$SERVO_RESULT"`, func(l *servov1.Lease) {
			l.Partition, l.Partitions = `{"date":"2026-01-01..2026-01-02"}`, []string{`{"date":"2026-01-01"}`, `{"date":"2026-01-02"}`}
		}))
		require.Equal(t, "Complete", got.state, got.failure)
		result, ok := got.result.AsInterface().(map[string]any)
		require.True(t, ok)
		require.Equal(t, "2026-01-01 2026-01-02", result["env"])
		seen, ok := result["seen"].(map[string]any)
		require.True(t, ok)
		require.Equal(t, []any{map[string]any{"date": "2026-01-01"}, map[string]any{"date": "2026-01-02"}}, seen["partitions"])
	})

	t.Run("its output is its log, and its directory is its own", func(t *testing.T) {
		t.Parallel()
		got := one(t, shell(`echo to stdout; echo to stderr >&2; printf 'bad \377 byte, no newline'; pwd > "$SERVO_RESULT.dir"; printf '"%s"' "$PWD" > "$SERVO_RESULT"`))
		require.Equal(t, "Complete", got.state, got.failure)
		require.Contains(t, got.log, " INFO to stdout\n")
		require.Contains(t, got.log, " WARN to stderr\n")
		require.Contains(t, got.log, " INFO bad \uFFFD byte, no newline\n")
		require.Contains(t, got.result.GetStringValue(), "servo-task-")
		require.NoDirExists(t, got.result.GetStringValue())
	})

	t.Run("a command without a result file has the result null", func(t *testing.T) {
		t.Parallel()
		got := one(t, shell(`true`))
		require.Equal(t, "Complete", got.state)
		require.Nil(t, got.result)
	})

	for name, c := range map[string]struct{ script, code, message string }{
		"a failed command fails with its code and stderr": {`echo reason >&2; exit 3`, "USER_CODE_EXCEPTION", "the command exited with code 3"},
		"exit 75 is tried again":                          {`exit 75`, "SERVICE_UNAVAILABLE", "the command exited with code 75"},
		"a command that is killed is reported":            {`kill -9 $$`, "WORKER_CRASH", "the command was terminated by signal killed, possibly by the kernel because memory ran out"},
		"a command that crashes is reported":              {`kill -SEGV $$`, "USER_CODE_EXCEPTION", "the command was terminated by signal segmentation fault"},
		"a result that is no JSON is reported":            {`echo hello > "$SERVO_RESULT"`, "USER_CODE_EXCEPTION", "the result is not JSON: invalid character 'h' looking for beginning of value"},
		"a result that is too large is reported":          {`head -c 70000 /dev/zero > "$SERVO_RESULT"`, "USER_CODE_EXCEPTION", "the result file has more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := one(t, shell(c.script))
			require.Equal(t, c.code, got.failure.GetCode())
			require.Equal(t, c.message, got.failure.GetMessage())
			if strings.Contains(c.script, "reason") {
				require.Equal(t, map[string]any{"exit_code": 3.0, "stderr": "reason\n"}, got.failure.GetDetails().AsMap())
			}
		})
	}

	t.Run("a missing command is a mistake of the configuration", func(t *testing.T) {
		t.Parallel()
		got := one(t, func(l *servov1.Lease) {
			l.Code = &servov1.Code{Kind: &servov1.Code_Exec{Exec: &servov1.ExecCode{Command: []string{"no-such-command"}}}}
		})
		require.Equal(t, "INVALID_CONFIGURATION", got.failure.GetCode())
		require.Contains(t, got.failure.GetMessage(), `the command "no-such-command" cannot be started`)
	})

	t.Run("a cancel ends the whole process group", func(t *testing.T) {
		t.Parallel()
		pids := filepath.Join(t.TempDir(), "pids")
		b := start(t, nil, execs)
		// The grandchild ignores SIGTERM and holds the output open.
		id := b.add(1, "gold/report", shell(`sh -c 'trap "" TERM; echo $$ > `+pids+`.new; mv `+pids+`.new `+pids+`; while :; do sleep 0.05; done' & echo started; wait`))[0]
		b.wait(t, func() bool { return b.leases[id] != nil })
		pid := waitForPid(t, pids)
		b.do(func() { b.leases[id].cancel = true })
		b.ended(t, id)
		require.Equal(t, "CANCELLED", b.lease(id).failure.GetCode())
		requireGone(t, pid)
	})

	t.Run("remaining processes of a command die with it, and delay no other task", func(t *testing.T) {
		t.Parallel()
		pids := filepath.Join(t.TempDir(), "pids")
		b := start(t, nil, execs)
		id := b.add(1, "gold/report", shell(`sleep 3600 & echo $! > `+pids+`.new; mv `+pids+`.new `+pids))[0]
		b.ended(t, id)
		require.Equal(t, "Complete", b.lease(id).state)
		requireGone(t, waitForPid(t, pids))
	})

	t.Run("a command past its timeout is stopped", func(t *testing.T) {
		t.Parallel()
		got := one(t, shell(`sleep 3600`, func(l *servov1.Lease) { l.Timeout = durationpb.New(50 * time.Millisecond) }))
		require.Equal(t, "TIMEOUT", got.failure.GetCode())
	})

	t.Run("an abort kills at once", func(t *testing.T) {
		t.Parallel()
		pids := filepath.Join(t.TempDir(), "pids")
		b := start(t, nil, execs)
		id := b.add(1, "gold/report", shell(`trap "" TERM; echo $$ > `+pids+`.new; mv `+pids+`.new `+pids+`; while :; do sleep 0.05; done`))[0]
		b.wait(t, func() bool { return b.leases[id] != nil })
		pid := waitForPid(t, pids)
		b.worker.Abort()
		require.NoError(t, b.stopped())
		require.Equal(t, "INTERRUPTED", b.lease(id).failure.GetCode())
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "it was gone before the worker was")
	})
}

// TestExecEnvironment is not parallel: it changes the environment.
func TestExecEnvironment(t *testing.T) {
	t.Setenv("SERVO_TEST_SECRET", "s3cret")
	t.Setenv("SERVO_TEST_PASSED", "passed")
	b := start(t, nil, func(c *worker.Options) {
		c.Executors = []worker.Executor{&worker.Exec{Dir: t.TempDir(), PassEnv: []string{"SERVO_TEST_PASSED"}}}
	})
	id := b.add(1, "gold/report", shell(`printf '["%s","%s","%s"]' "$SERVO_TEST_SECRET" "$SERVO_TEST_PASSED" "$PATH" > "$SERVO_RESULT"`))[0]
	b.ended(t, id)
	require.Equal(t, []any{"", "passed", os.Getenv("PATH")}, b.lease(id).result.AsInterface())
}

// waitForPid waits for a script to write its process id.
func waitForPid(t *testing.T, file string) int {
	t.Helper()
	var pid int
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	return pid
}

// requireGone waits until a process is gone: one that was killed is a zombie for a moment,
// until init has seen it.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		if syscall.Kill(pid, 0) != nil {
			return true
		}
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		return err == nil && strings.Contains(string(stat), ") Z ")
	}, time.Minute, 5*time.Millisecond)
}

// TestExecUser holds that commands run as the user that the worker was given, who can neither
// look into the worker's process nor make it read files for them.
func TestExecUser(t *testing.T) {
	t.Parallel()
	user, err := worker.LookupUser("exec-user", "65534:65534")
	if os.Geteuid() != 0 {
		require.ErrorContains(t, err, "only root")
		return
	}
	require.NoError(t, err)
	b := start(t, nil, func(c *worker.Options) { c.Executors = []worker.Executor{&worker.Exec{User: user}} })
	run := func(script string) *fakeLease {
		id := b.add(1, "gold/report", shell(script))[0]
		b.ended(t, id)
		return b.lease(id)
	}
	got := run(`printf '"%s %s %s"' "$(id -u)" "$(id -G)" "$(cat /proc/$PPID/environ /proc/$PPID/mem > /dev/null 2>&1 && echo open || echo closed)" > "$SERVO_RESULT"`)
	require.Equal(t, "Complete", got.state, got.failure)
	require.Equal(t, "65534 65534 closed", got.result.AsInterface())
	for _, script := range []string{`ln -s /etc/shadow "$SERVO_RESULT"`, `mkfifo "$SERVO_RESULT"`, `mkdir "$SERVO_RESULT"`} {
		got := run(script)
		require.Equal(t, "Fail", got.state, script)
		require.Contains(t, got.failure.GetMessage(), "cannot be read", script)
	}
	require.NoError(t, b.stopped())
}
