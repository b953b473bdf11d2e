//go:build soak

package slots

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/store"
)

// offsetVariable is by how much the clock of a server is wrong.
const offsetVariable = "SERVO_TEST_CLOCK_OFFSET"

// readsOffset is added to package time in the servers of this test.
const readsOffset = `package time

import "syscall"

var wallOffset = readWallOffset()

func readWallOffset() int64 {
	text, _ := syscall.Getenv("` + offsetVariable + `")
	d, _ := ParseDuration(text)
	return int64(d / Second)
}
`

// wrongClocks builds the real server with another time.Now: the wall clock of the machine and the
// offset from the environment. The product has no such thing.
func wrongClocks(t *testing.T) (program string) {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	file := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(file) //nolint:gosec // of Go itself
	require.NoError(t, err)
	const before, after = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += wallOffset\n"
	require.Equal(t, 1, strings.Count(string(text), before), "time.Now of this Go is written differently: adapt how the test reads its wall clock")
	dir := t.TempDir()
	replace := map[string]string{}
	for name, content := range map[string]string{
		"time.go": strings.Replace(string(text), before, after, 1), "wall_offset.go": readsOffset,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		replace[filepath.Join(filepath.Dir(file), name)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	program = filepath.Join(dir, "servo")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/servo") //nolint:gosec // ours
	build.Dir = filepath.Join("..", "..", "..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	return program
}

// replica is a server whose clock is wrong.
type replica struct {
	name   string
	offset time.Duration
	web    string
	client *client.Client
	stop   func() // in order
}

func startReplica(t *testing.T, program, database, name string, offset time.Duration) *replica {
	t.Helper()
	r := &replica{name: name, offset: offset, web: freeAddress(t)}
	grpc := freeAddress(t)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "server", "--open", "--rate-trigger", "0", "--rate-list", "0", "--rate-deploy", "0", "--max-streams", "0", "--database", database, "--name", name, "--http", r.web, "--grpc", grpc, "--log-level", "warn") //nolint:gosec // ours
	cmd.Env = append(os.Environ(), "SERVO_CONFIG="+os.DevNull, offsetVariable+"="+offset.String())
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	require.NoError(t, cmd.Start())
	r.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	t.Cleanup(r.stop)
	var err error
	r.client, err = client.New(client.Options{Servers: []string{grpc}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.client.Close() })
	return r
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// clock is the server's own time, by the date of its answer, once it is ready.
func (r *replica) clock(ctx context.Context) (time.Time, error) {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.web+"/readyz", http.NoBody)
		if err != nil {
			return time.Time{}, err
		}
		answer, err := http.DefaultClient.Do(request)
		if ctx.Err() != nil {
			return time.Time{}, ctx.Err()
		}
		if err != nil {
			continue // it does not listen yet
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return http.ParseTime(answer.Header.Get("Date"))
		}
	}
}

// TestWrongClocks: servers whose own clocks are an hour ahead, an hour behind and half a minute
// ahead fire the same slots at the same time as one whose clock is right, and report the same.
func TestWrongClocks(t *testing.T) {
	t.Parallel()
	program := wrongClocks(t)
	db := servotest.DB(t)
	owner := prepare(t, db)
	begin := databaseTime(t, db)
	var replicas []*replica
	for name, offset := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour, "hurried": 30 * time.Second, "right": 0} {
		replicas = append(replicas, startReplica(t, program, db.URL, name, offset))
	}
	for _, r := range replicas {
		own, err := r.clock(t.Context())
		require.NoError(t, err)
		require.InDelta(t, r.offset.Seconds(), own.Sub(databaseTime(t, db)).Seconds(), 20, "%s: its clock is wrong as it should be", r.name)
		created, err := r.client.Configs().CreateConfig(t.Context(), &servov1.CreateConfigRequest{Tenant: "acme", Name: "made-by-" + r.name, Spec: everyTenMinutes()})
		require.NoError(t, err)
		require.WithinRange(t, created.GetCreatedAt().AsTime(), begin, databaseTime(t, db))
	}

	// Each of them fires, a few configs at a time, until four rounds are decided.
	const some = 4 * period
	var decided atomic.Bool
	group, ctx := errgroup.WithContext(t.Context())
	for _, r := range replicas {
		group.Go(func() error {
			for !decided.Load() {
				if _, err := r.client.Scheduler().Tick(ctx, &servov1.TickRequest{BatchSize: 10}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for db.Count(t, `SELECT count(*) FROM servo.configs WHERE name LIKE 'config-%' AND decided_until < $1`, begin.Add(some)) > 0 {
		require.NoError(t, ctx.Err())
	}
	decided.Store(true)
	require.NoError(t, group.Wait())
	requireSameAnswers(t, db, replicas)
	for _, r := range replicas {
		r.stop()
	}

	// Nothing was fired before its time, and nothing was dated by another clock.
	end := databaseTime(t, db)
	require.Equal(t, len(replicas), db.Count(t, `SELECT count(DISTINCT decided_by) FROM servo.slots`), "each has fired")
	require.Zero(t, db.Count(t, `SELECT count(*) FROM servo.slots WHERE decided_at < slot_at OR decided_at < $1 OR decided_at > $2`, begin, end))
	require.Zero(t, db.Count(t, `SELECT count(*) FROM servo.runs WHERE created_at < $1 OR created_at > $2 OR id < servo.uuid_floor($1::timestamptz - interval '1 millisecond') OR id > servo.uuid_floor($2::timestamptz + interval '1 second')`, begin, end))
	require.Zero(t, db.Count(t, `SELECT count(*) FROM servo.run_events WHERE recorded_at < $1 OR recorded_at > $2`, begin, end))
	require.Zero(t, db.Count(t, `SELECT count(*) FROM (SELECT config_id, slot_at FROM servo.runs GROUP BY 1, 2 HAVING count(*) > 1) AS twice`))
	require.Zero(t, db.Count(t, `SELECT count(*) FROM servo.slot_ranges`), "no slot was missed")
	requireNoHoles(t, db, owner)
	verifytest.Clean(t, db)
}

func everyTenMinutes() *servov1.ConfigSpec {
	return &servov1.ConfigSpec{Pipeline: "one", Trigger: &servov1.ConfigTrigger{Cron: "*/10 * * * *"}}
}

// requireSameAnswers asks all of them the same.
func requireSameAnswers(t *testing.T, db *servotest.Database, replicas []*replica) {
	t.Helper()
	questions := map[string]func(c *client.Client, config string) (proto.Message, error){
		"config": func(c *client.Client, config string) (proto.Message, error) {
			return c.Configs().GetConfig(t.Context(), &servov1.GetConfigRequest{Tenant: "acme", Config: config})
		},
		"preview": func(c *client.Client, config string) (proto.Message, error) {
			return c.Configs().PreviewConfig(t.Context(), &servov1.PreviewConfigRequest{Tenant: "acme", Config: config})
		},
		"why": func(c *client.Client, config string) (proto.Message, error) {
			return c.Configs().ExplainConfig(t.Context(), &servov1.ExplainConfigRequest{Tenant: "acme", Config: config})
		},
	}
	for what, ask := range questions {
		for _, asked := range replicas {
			for { // the answers of the same ten minutes are the same
				tens := databaseTime(t, db).Truncate(10 * time.Minute)
				var answers []string
				for _, r := range replicas {
					answer, err := ask(r.client, "made-by-"+asked.name)
					require.NoError(t, err)
					answers = append(answers, fmt.Sprint(answer))
				}
				if databaseTime(t, db).Truncate(10*time.Minute) != tens {
					continue
				}
				for i, r := range replicas {
					require.Equal(t, answers[0], answers[i], "%s: %s and %s", what, replicas[0].name, r.name)
				}
				break
			}
		}
	}
}

func databaseTime(t *testing.T, db *servotest.Database) (now time.Time) {
	t.Helper()
	require.NoError(t, db.Engine(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
		now, err = tx.Clock(ctx)
		return err
	}))
	return now
}
