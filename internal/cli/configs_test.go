package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/cli"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

func TestApplyManyConfigs(t *testing.T) {
	t.Parallel()
	many := 3_000 // four calls with those below
	if text := os.Getenv("SERVO_CONFIGS"); text != "" {
		var err error
		many, err = strconv.Atoi(text)
		require.NoError(t, err, "SERVO_CONFIGS")
	}
	server := servertest.Start(t).GRPC
	dir := t.TempDir()
	servo := func(code int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if args[0] != "tenants" {
			args = append(args, "--tenant", "acme")
		}
		got := cli.Main(t.Context(), append(args, "--server", server), strings.NewReader(""), &stdout, &stderr)
		require.Equal(t, code, got, "%s", stderr.String())
		return stdout.String() + stderr.String()
	}
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	manifest := filepath.Join(t.TempDir(), "servo.yaml")
	require.NoError(t, os.WriteFile(manifest, []byte("version: 1\nassets: [{key: a/b, go: {}}]\npipelines: [{name: p}]"), 0o600))
	servo(0, "tenants", "create", "acme")
	servo(0, "deploy", "-f", manifest)
	for file := range 10 {
		var text strings.Builder
		for i := range many / 10 {
			n := file*many/10 + i
			fmt.Fprintf(&text, "name: c-%d\npipeline: p\nlabels: {n: %q}\ntrigger: {cron: \"%d 2 * * *\"}\n---\n", n, fmt.Sprint(n), n%60)
		}
		write(fmt.Sprintf("%d.yaml", file), text.String())
	}

	out := servo(0, "configs", "apply", "-f", dir, "--yes")
	require.Contains(t, out, fmt.Sprintf("… and %d configs more", many-200))
	require.Contains(t, out, fmt.Sprintf("applied to acme: %d created, 0 changed, 0 unchanged", many))
	require.Contains(t, servo(0, "configs", "apply", "-f", dir, "--yes"), fmt.Sprintf("0 created, 0 changed, %d unchanged", many))

	// One that is wrong, in the last call: none of the others is written.
	write("0.yaml", "name: c-0\npipeline: p\ntrigger: {manual: true}")
	write("z.yaml", "name: new\npipeline: p\ntrigger: {manual: true}\n---\nname: bad\npipeline: q\ntrigger: {manual: true}")
	require.Contains(t, servo(2, "configs", "apply", "-f", dir, "--yes"), "z.yaml, document 2: pipeline: ")
	require.Contains(t, servo(0, "configs", "get", "c-0"), "0 2 * * *")
	servo(4, "configs", "get", "new")
}
