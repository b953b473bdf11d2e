package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/daemon"
)

func TestSkew(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claim string
		off   time.Duration // from the moment of asking
		took  time.Duration // the answer
		want  verdict
	}{
		{"the same time", 0, 0, passed},
		{"a slow answer is no wrong clock", 3 * time.Second, 5 * time.Second, passed},
		{"half a second is nothing", -500 * time.Millisecond, 0, passed},
		{"some seconds are worth knowing", 3 * time.Second, 0, doubted},
		{"and backwards", -3 * time.Second, 0, doubted},
		{"a minute is wrong", time.Minute, 0, failed},
		{"and backwards", -time.Minute, 0, failed},
	} {
		begun := time.Now().Add(-c.took)
		require.Equal(t, c.want, checkClock("it", begun, begun.Add(c.off)).Verdict, c.claim)
	}
}

func TestDatabaseVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]verdict{
		"15.18 (Debian 15.18-0+deb12u1)": passed, "18beta1": passed, "17": passed, "14.9": failed, "9.6": failed, "": failed, "EnterpriseDB": failed,
	} {
		require.Equal(t, want, databaseVersion(version).Verdict, version)
	}
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	busy := daemon.Transaction{Process: 7, Who: "servo pg_dump", Age: 90 * time.Minute}
	forgotten := daemon.Transaction{Process: 8, Who: "servo psql", Age: 65 * time.Second, Idle: true}
	for _, c := range []struct {
		claim string
		open  []daemon.Transaction
		want  finding
	}{
		{"none is well", nil, finding{Check: "transactions", Verdict: passed, Message: "none is older than 1m"}},
		{"work that takes long is worth knowing", []daemon.Transaction{busy}, finding{
			Check: "transactions", Verdict: doubted, Message: "process 7 (servo pg_dump) has had one open for 1h30m",
			Remedy: "let it end, such as a backup; until then nothing is vacuumed",
		}},
		{"one with a snapshot holds the feed back", []daemon.Transaction{{Process: 7, Who: "etl", Age: time.Hour, Holds: true}}, finding{
			Check: "transactions", Verdict: doubted, Message: "process 7 (etl) has had one open for 1h00m; subscriptions and streams wait for its end",
			Remedy: "let it end, such as a backup; until then nothing is vacuumed",
		}},
		{"one that was forgotten is to be ended", []daemon.Transaction{forgotten, busy}, finding{
			Check: "transactions", Verdict: failed,
			Message: "process 8 (servo psql) has had one open for 1m05s and is idle; others wait for its locks (and 1 more)",
			Remedy:  "end it: SELECT pg_terminate_backend(8)",
		}},
	} {
		require.Equal(t, c.want, checkTransactions(c.open, false), c.claim)
	}
}

func TestTransactionsOfOthers(t *testing.T) {
	t.Parallel()
	f := checkTransactions(nil, true)
	require.Equal(t, doubted, f.Verdict)
	require.Contains(t, f.Remedy, "pg_read_all_stats")
}

func TestProgramName(t *testing.T) {
	t.Parallel()
	for called, want := range map[string]string{
		"servo": "servo", "./servo": "./servo", "bin/servo": "bin/servo", "": "servo", "/my files/servo": "'/my files/servo'",
	} {
		require.Equal(t, want, programName(called))
	}
}

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:8080": true, "localhost:8080": true, "[::1]:8080": true, "127.8.9.1:1": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:80": false, "example.com:80": false,
	} {
		require.Equal(t, want, isLoopback(address), address)
	}
}

func TestPresenceFindings(t *testing.T) {
	t.Parallel()
	end := timestamppb.New(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	require.Equal(t, []finding{{Check: "workers", Verdict: passed, Message: "1 worker seen within two minutes, none is silent"}},
		checkWorkers([]*servov1.Worker{{Name: "w1"}}, []*servov1.PoolStatus{{Pool: "default", Queued: 4}}))
	require.Equal(t, []finding{
		{
			Check: "workers", Verdict: doubted, Message: "worker w1 is silent; its 2 leases end at 2026-05-01T12:00:00Z",
			Remedy: "check that it runs and reaches a server",
		},
		{
			Check: "workers", Verdict: doubted, Message: "server a, which sends the tasks of push pool lambda, is silent",
			Remedy: "check that the server runs; other servers send the pool's tasks meanwhile",
		},
		{Check: "workers", Verdict: doubted, Message: "3 tasks of pool default for go:orders: no live worker can run them", Remedy: "start it"},
	}, checkWorkers([]*servov1.Worker{
		{Name: "w1", Silent: true, Leases: 2, LeasesEndAt: end},
		{Name: "w2"},
		{Name: "push/a/lambda", Pools: []string{"lambda"}, Silent: true, DispatcherOf: "a"},
	}, []*servov1.PoolStatus{{Pool: "default", Unserved: []*servov1.UnservedNeed{{Capability: "go:orders", Tasks: 3, Remedy: "start it"}}}}))
}

func TestWorkerRemark(t *testing.T) {
	t.Parallel()
	end := timestamppb.New(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	require.Empty(t, workerRemark(&servov1.Worker{Name: "w", LeasesEndAt: end}))
	require.Equal(t, "silent; its leases expire at 2026-05-01T12:00:00Z", workerRemark(&servov1.Worker{Silent: true, LeasesEndAt: end}))
	require.Equal(t, "dispatcher of server a", workerRemark(&servov1.Worker{DispatcherOf: "a"}))
	require.Equal(t, "dispatcher of server a is silent", workerRemark(&servov1.Worker{DispatcherOf: "a", Silent: true}))
	require.Equal(t, "exec, http, 2 Go handlers", runsText([]string{"exec", "go:a", "go:b", "http"}))
}
