//go:build unix

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/data/blob"
	"go.arco.dev/servo/internal/worker"
)

// withBlobs gives a worker a blob store and commands.
func withBlobs(t *testing.T) (*blob.Store, func(*worker.Options)) {
	t.Helper()
	store, err := blob.Open(t.Context(), "file://"+t.TempDir(), blob.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store, func(o *worker.Options) {
		o.Blobs = store
		o.Executors = append(o.Executors, &worker.Exec{})
		o.HeartbeatEvery = 20 * time.Millisecond
	}
}

// declares gives a lease a declared output.
func declares(declaration string) func(*servov1.Lease) {
	return func(l *servov1.Lease) {
		l.Output, l.Workspace, l.FencingToken = declaration, "workspace", 7
	}
}

func objects(t *testing.T, store *blob.Store) []string {
	t.Helper()
	var paths []string
	for o, err := range store.List(t.Context(), "") {
		require.NoError(t, err)
		paths = append(paths, o.Path)
	}
	return paths
}

const orders = `{"output": {"format": "csv", "schema": [{"name": "id", "type": "integer"}, {"name": "email", "type": "string"}], "sensitive": ["email"]},
	"checks": [{"name": "schema", "type": "schema", "severity": "CRITICAL"}, {"name": "unique ids", "type": "unique", "columns": ["id"], "severity": "CRITICAL"},
	           {"name": "emails", "type": "regex", "column": "email", "pattern": "@", "severity": "ERROR"}]}`

func TestOutput(t *testing.T) {
	t.Parallel()

	t.Run("files are checked, committed, and read by the next task", func(t *testing.T) {
		t.Parallel()
		store, blobs := withBlobs(t)
		var read []string
		b := start(t, handlers{"gold/count": func(ctx context.Context, task *worker.Task) (worker.Result, error) {
			inputs, err := task.Inputs(ctx)
			if err != nil {
				return worker.Result{}, err
			}
			for _, file := range inputs["bronze/orders"].Files {
				data, err := os.ReadFile(file)
				if err != nil {
					return worker.Result{}, err
				}
				read = append(read, string(data))
			}
			upstream, err := task.Upstream(ctx, "bronze/orders")
			return worker.Result{JSON: upstream}, err
		}}, blobs)
		id := b.add(1, "bronze/orders", shell(`printf 'id,email\n1,a@x\n2,b\n' > "$SERVO_OUTPUT_DIR/part-0.csv"; echo '{"pages":3}' > "$SERVO_RESULT"`), declares(orders))[0]
		b.ended(t, id)
		first := b.lease(id)
		require.Equal(t, "Complete", first.state, first.failure)
		committed := first.result.GetStructValue().GetFields()["servo_output"].GetStructValue().AsMap()
		require.Equal(t, "WARN", committed["gate"], "an ERROR check failed")
		require.InDelta(t, 2, committed["rows"], 0)
		prefix := "acme/workspace/assets/bronze/orders/materializations/" + first.lease.GetTask() + "-7/"
		require.Equal(t, prefix, committed["path"])
		require.ElementsMatch(t, []string{prefix + "_commit.json", prefix + "_metadata.json", prefix + "part-0.csv"}, objects(t, store))
		metadata, err := store.Get(t.Context(), prefix+"_metadata.json", 1<<20)
		require.NoError(t, err)
		require.Contains(t, string(metadata), `"name":"emails"`)
		require.NotContains(t, string(metadata), `"b"`, "a sensitive value is in no sample")

		next := func(l *servov1.Lease) {
			l.Workspace = "workspace"
			l.Upstream = []*servov1.UpstreamResult{{Run: first.lease.GetRun(), Task: first.lease.GetTask(), Asset: "bronze/orders", Result: first.result}}
		}
		id = b.add(1, "gold/count", next)[0]
		b.ended(t, id)
		got := b.lease(id)
		require.Equal(t, "Complete", got.state, got.failure)
		require.Equal(t, []string{"id,email\n1,a@x\n2,b\n"}, read)
		require.Equal(t, map[string]any{"pages": 3.0}, got.result.AsInterface(), "the code's own result")

		id = b.add(1, "gold/report", shell(`cat "$SERVO_INPUTS" > "$SERVO_RESULT"`), next)[0]
		b.ended(t, id)
		got = b.lease(id)
		require.Equal(t, "Complete", got.state, got.failure)
		input, ok := got.result.GetStructValue().AsMap()["bronze/orders"].(map[string]any)
		require.True(t, ok)
		require.Equal(t, "csv", input["format"])
		require.Equal(t, committed["digest"], input["digest"])
		require.NoError(t, b.stopped())
	})

	for name, c := range map[string]struct{ script, declaration, code, message string }{
		"a failed check blocks":      {`printf 'id,email\n1,a@x\n1,b@x\n' > "$SERVO_OUTPUT_DIR/a.csv"`, orders, "CHECK_FAILED", `check "unique ids" failed: 1 of 2 rows repeat another row; expected no value twice`},
		"another schema blocks":      {`printf 'id,mail\n1,a@x\n' > "$SERVO_OUTPUT_DIR/a.csv"`, orders, "CHECK_FAILED", `check "schema" failed: column "email" is missing`},
		"no files":                   {`true`, orders, "CHECK_FAILED", "the output has no files"},
		"a link":                     {`ln -s /etc/passwd "$SERVO_OUTPUT_DIR/a.csv"`, orders, "CHECK_FAILED", "not a regular file"},
		"a marker of its own":        {`echo x > "$SERVO_OUTPUT_DIR/_commit.json"`, orders, "CHECK_FAILED", "reserved name"},
		"a truncated Parquet file":   {`printf 'PAR1' > "$SERVO_OUTPUT_DIR/a.parquet"`, `{"output": {"format": "parquet"}}`, "CHECK_FAILED", "not readable as parquet"},
		"a check without a function": {`echo '{}' > "$SERVO_OUTPUT_DIR/a.json"`, `{"output": {"format": "json"}, "checks": [{"name": "c", "type": "custom", "function": "c", "severity": "CRITICAL"}]}`, "CHECK_FAILED", "no function"},
		"a failing command":          {`exit 3`, orders, "USER_CODE_EXCEPTION", "exited with code 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, blobs := withBlobs(t)
			b := start(t, nil, blobs)
			id := b.add(1, "bronze/orders", shell(c.script), declares(c.declaration))[0]
			b.ended(t, id)
			got := b.lease(id)
			require.Equal(t, "Fail", got.state)
			require.Equal(t, c.code, got.failure.GetCode())
			require.Contains(t, got.failure.GetMessage(), c.message)
			require.Empty(t, objects(t, store), "nothing is committed")
			require.NoError(t, b.stopped())
		})
	}

	t.Run("a failed critical check of an input keeps the code from running", func(t *testing.T) {
		t.Parallel()
		_, blobs := withBlobs(t)
		called := false
		b := start(t, handlers{"gold/count": func(context.Context, *worker.Task) (worker.Result, error) {
			called = true
			return worker.Result{}, nil
		}}, blobs)
		id := b.add(1, "bronze/orders", shell(`printf 'id,email\n' > "$SERVO_OUTPUT_DIR/a.csv"`), declares(orders))[0]
		b.ended(t, id)
		first := b.lease(id)
		require.Equal(t, "Complete", first.state, first.failure)
		id = b.add(1, "gold/count", declares(`{"checks": [{"name": "rows", "type": "row_count", "min": 1, "phase": "PRE", "severity": "CRITICAL"}]}`), func(l *servov1.Lease) {
			l.Upstream = []*servov1.UpstreamResult{{Run: first.lease.GetRun(), Task: first.lease.GetTask(), Asset: "bronze/orders", Result: first.result}}
		})[0]
		b.ended(t, id)
		got := b.lease(id)
		require.Equal(t, "CHECK_FAILED", got.failure.GetCode())
		require.Contains(t, got.failure.GetMessage(), `check "rows" failed: 0; expected at least 1`)
		require.NoError(t, b.stopped())
		require.False(t, called)
	})

	t.Run("values must exist in an upstream, and its sensitive columns stay hidden", func(t *testing.T) {
		t.Parallel()
		store, blobs := withBlobs(t)
		b := start(t, nil, blobs)
		id := b.add(1, "bronze/orders", shell(`printf 'id,email\n1,a@x\n2,hidden\n' > "$SERVO_OUTPUT_DIR/a.csv"`), declares(orders))[0]
		b.ended(t, id)
		first := b.lease(id)
		require.Equal(t, "Complete", first.state, first.failure)
		downstream := func(l *servov1.Lease) {
			l.Upstream = []*servov1.UpstreamResult{{Run: first.lease.GetRun(), Task: first.lease.GetTask(), Asset: "bronze/orders", Result: first.result}}
		}
		check := `{"output": {"format": "csv"}, "checks": [{"name": "orders", "type": "referential", "column": "order", "references": {"asset": "bronze/orders", "column": "id"}, "severity": "CRITICAL"}]}`
		id = b.add(1, "gold/lines", shell(`printf 'order\n1\n2\n2\n' > "$SERVO_OUTPUT_DIR/a.csv"`), declares(check), downstream)[0]
		b.ended(t, id)
		require.Equal(t, "Complete", b.lease(id).state, b.lease(id).failure)
		id = b.add(1, "gold/lines", shell(`printf 'order\n1\n3\n' > "$SERVO_OUTPUT_DIR/a.csv"`), declares(check), downstream)[0]
		b.ended(t, id)
		require.Contains(t, b.lease(id).failure.GetMessage(), `check "orders" failed: 1 distinct values do not exist there; expected values of id in bronze/orders`)
		require.Contains(t, b.lease(id).failure.GetDetails().String(), "3")

		id = b.add(1, "gold/lines", shell(`true`), declares(`{"checks": [{"name": "mails", "type": "regex", "phase": "PRE", "column": "email", "pattern": "@", "severity": "CRITICAL"}]}`), downstream)[0]
		b.ended(t, id)
		got := b.lease(id)
		require.Contains(t, got.failure.GetMessage(), `check "mails" failed: 1 of 2 rows`)
		require.NotContains(t, got.failure.String(), "hidden", "the upstream declares the column as sensitive")
		require.NotEmpty(t, objects(t, store))
		require.NoError(t, b.stopped())
	})

	t.Run("a check of the code's own", func(t *testing.T) {
		t.Parallel()
		_, blobs := withBlobs(t)
		registered := worker.NewHandlers()
		registered.Add("gold/files", func(_ context.Context, task *worker.Task) (worker.Result, error) {
			return worker.Result{}, os.WriteFile(filepath.Join(task.OutputDir(), "report.txt"), []byte("x"), 0o600)
		})
		registered.AddCheck("balanced", func(context.Context, *worker.Task) error { return errors.New("off by 3") })
		b := start(t, nil, blobs, func(o *worker.Options) { o.Executors = []worker.Executor{registered} })
		id := b.add(1, "gold/files", declares(`{"output": {"format": "files"}, "checks": [{"name": "balanced", "type": "custom", "function": "balanced", "severity": "CRITICAL"}]}`))[0]
		b.ended(t, id)
		require.Contains(t, b.lease(id).failure.GetMessage(), `check "balanced" failed: off by 3`)
		require.NoError(t, b.stopped())
	})

	t.Run("a result cannot name files of another tenant, task or version", func(t *testing.T) {
		t.Parallel()
		store, blobs := withBlobs(t)
		b := start(t, handlers{"gold/count": func(ctx context.Context, task *worker.Task) (worker.Result, error) {
			_, err := task.Inputs(ctx)
			return worker.Result{}, err
		}}, blobs)
		id := b.add(1, "bronze/orders", shell(`printf 'id,email\n1,a@x\n' > "$SERVO_OUTPUT_DIR/a.csv"`), declares(orders), func(l *servov1.Lease) { l.Tenant = "bravo" })[0]
		b.ended(t, id)
		theirs := b.lease(id)
		require.Equal(t, "Complete", theirs.state, theirs.failure)
		require.NotEmpty(t, objects(t, store))
		for name, change := range map[string]func(u *servov1.UpstreamResult){
			"another tenant":  func(*servov1.UpstreamResult) {},
			"another version": func(u *servov1.UpstreamResult) { u.Result = withToken(t, u.GetResult(), 8) },
		} {
			id = b.add(1, "gold/count", func(l *servov1.Lease) {
				u := &servov1.UpstreamResult{Run: theirs.lease.GetRun(), Task: theirs.lease.GetTask(), Asset: "bronze/orders", Result: theirs.result}
				change(u)
				l.Workspace, l.Upstream = "workspace", []*servov1.UpstreamResult{u}
			})[0]
			b.ended(t, id)
			require.Equal(t, "MISSING_INPUT", b.lease(id).failure.GetCode(), name)
		}
		require.NoError(t, b.stopped())
	})

	t.Run("only a worker with a blob store declares that it commits outputs", func(t *testing.T) {
		t.Parallel()
		declared := func(b *bundle) []string {
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, r := range b.requests {
				if claim, ok := r.(*servov1.ClaimRequest); ok {
					return claim.GetCapabilities()
				}
			}
			return nil
		}
		_, blobs := withBlobs(t)
		with := start(t, handlers{"a/b": nothing}, blobs)
		with.ended(t, with.add(1, "a/b")[0])
		require.True(t, slices.Contains(declared(with), "output:go:a/b") && slices.Contains(declared(with), "output:exec"), "%v", declared(with))
		without := start(t, handlers{"a/b": nothing})
		id := without.add(1, "a/b", declares(orders))[0]
		without.ended(t, id)
		require.Equal(t, []string{"go:a/b"}, declared(without))
		require.Contains(t, without.lease(id).failure.GetMessage(), "this worker has no blob store")
		require.NoError(t, with.stopped())
		require.NoError(t, without.stopped())
	})
}

// withToken changes the token in a result.
func withToken(t *testing.T, result *structpb.Value, token float64) *structpb.Value {
	t.Helper()
	var changed map[string]any
	data, err := json.Marshal(result.AsInterface())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &changed))
	changed["servo_output"].(map[string]any)["token"] = token //nolint:forcetypeassert // it is one
	value, err := structpb.NewValue(changed)
	require.NoError(t, err)
	return value
}
