package cli_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/cli"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/proof/verify"
	"go.arco.dev/servo/internal/store"
)

// servo runs a command line against a database.
func servo(t testing.TB, address string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = cli.Main(t.Context(), append(args, "--database", address), strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

func TestMigrateCommand(t *testing.T) {
	t.Parallel()
	address := servotest.Empty(t, "template0")

	code, stdout, stderr := servo(t, address, "migrate", "status")
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^1 +00001_foundation +no`, stdout)

	code, _, stderr = servo(t, address, "admin", "projections", "verify")
	require.Equal(t, 1, code)
	require.Equal(t, "error: --database: migration 1 (00001_foundation) is not applied (run servo migrate up) [CONFLICT]\n", stderr)

	code, stdout, stderr = servo(t, address, "migrate", "up")
	require.Zero(t, code, stderr)
	require.Regexp(t, `^applied [1-9]\d* migrations\n$`, stdout)
	_, stdout, _ = servo(t, address, "migrate", "up", "--output", "json")
	require.JSONEq(t, `{"applied": 0}`, stdout)

	code, stdout, _ = servo(t, address, "migrate", "status", "-o", "json")
	require.Zero(t, code)
	var status []store.MigrationStatus
	require.NoError(t, json.Unmarshal([]byte(stdout), &status))
	for _, m := range status {
		require.True(t, m.Applied && m.AppliedAt != nil, m)
	}

	code, stdout, stderr = servo(t, address, "admin", "projections", "verify")
	require.Zero(t, code, stderr)
	require.Equal(t, "0 tenants, 0 runs, 0 tasks, 0 events: 0 divergences\n", stdout)
}

func TestMigrateCommandOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	db.Exec(t, `INSERT INTO servo.migration_checksums (version, name, sha256) VALUES (9999, '09999_later', 'x')`)
	_, stdout, _ := servo(t, db.URL, "migrate", "status")
	require.Regexp(t, `(?m)^9999 +09999_later .* by a newer version$`, stdout)
	for _, args := range [][]string{{"migrate", "up"}, {"admin", "projections", "verify"}} {
		code, _, stderr := servo(t, db.URL, args...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "9999")
		require.Contains(t, stderr, "[CONFLICT]")
	}
}

func TestAdminCommand(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	e := engine.New(db.Store, engine.Config{}, nil)
	t.Cleanup(e.Stop)
	tenant, err := e.CreateTenant(t.Context(), "acme", event.Meta{})
	require.NoError(t, err)
	_, err = e.CreateTenant(t.Context(), "other", event.Meta{})
	require.NoError(t, err)
	manifest, err := asset.Parse([]byte("version: 1\nassets: [{key: a/b, go: {}}]"), "servo.yaml")
	require.NoError(t, err)
	_, err = e.Deploy(t.Context(), tenant, "default", manifest, event.Meta{})
	require.NoError(t, err)
	triggered, err := e.TriggerRun(t.Context(), engine.Trigger{Tenant: tenant, Select: []string{"*"}})
	require.NoError(t, err)
	run := triggered.Run.String()

	code, stdout, stderr := servo(t, db.URL, "admin", "projections", "verify", "--sample", "10")
	require.Zero(t, code, stderr)
	require.Equal(t, "2 tenants, 1 run, 1 task, 7 events: 0 divergences\n", stdout)
	_, stdout, _ = servo(t, db.URL, "admin", "repair", run, "--tenant", "acme")
	require.Equal(t, "nothing to repair\n", stdout)

	db.Exec(t, `UPDATE servo.runs SET pipeline = 'spoilt'`)
	code, stdout, stderr = servo(t, db.URL, "admin", "projections", "verify", "--tenant", "acme", "-o", "json")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "error: 1 divergence (find the cause, then repair a run: servo admin repair")
	var report verify.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Equal(t, []verify.Divergence{{
		Kind: verify.Differs, Table: "runs", Column: "pipeline", Tenant: tenant, Run: triggered.Run, Subject: triggered.Run.UUID, Want: `""`, Got: `"spoilt"`,
	}}, report.Divergences)
	code, _, stderr = servo(t, db.URL, "admin", "projections", "verify", "--tenant", "other")
	require.Zero(t, code, stderr)

	_, stdout, _ = servo(t, db.URL, "admin", "repair", run, "--tenant", "acme")
	require.Contains(t, stdout, `differs runs.pipeline tenant `+tenant.String()+` run `+run+`: want "", got "spoilt"`)
	code, _, stderr = servo(t, db.URL, "admin", "projections", "verify")
	require.Zero(t, code, stderr)
}

func TestAdminMistakes(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	const run = "0192f0c1-2b3c-7d4e-8f5a-6b7c8d9e0f10"
	for _, c := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"admin", "projections", "verify", "--sample", "-1"}, 2, "error: --sample: is negative "},
		{[]string{"admin", "projections", "verify", "--tenant", "missing"}, 4, "error: tenant: no tenant missing "},
		{[]string{"admin", "projections", "verify", "x"}, 2, `error: takes no arguments, but got "x" `},
		{[]string{"admin", "repair"}, 2, "error: takes 1 argument, not 0 "},
		{[]string{"admin", "repair", "x", "--tenant", "acme"}, 2, "error: RUN: is not a UUID "},
		{[]string{"admin", "repair", run}, 2, "error: --tenant: is missing "},
		{[]string{"admin", "repair", run, "--tenant", "missing"}, 4, "error: tenant: no tenant missing "},
		{[]string{"migrate", "up", "x"}, 2, `error: takes no arguments, but got "x" `},
		{[]string{"migrate", "status", "--output", "tabel"}, 2, "error: "},
	} {
		code, _, stderr := servo(t, db.URL, c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, stderr)
		require.Contains(t, stderr, c.stderr, c.args)
		require.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %s", stderr)
	}

	for address, want := range map[string]string{
		"postgres://missing@127.0.0.1:1/x": "[UNAVAILABLE]", ":::": "[INVALID_ARGUMENT]",
	} {
		_, _, stderr := servo(t, address, "migrate", "status")
		require.Contains(t, stderr, want)
		require.Equal(t, 1, strings.Count(stderr, "\n"), "one line: %s", stderr)
	}
}
