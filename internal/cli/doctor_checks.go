package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/devpg"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/store"
)

// What the checks go by.
const (
	doctorPatience = 5 * time.Second // for one answer
	skewNoticed    = time.Second     // between two clocks
	skewTooLarge   = 10 * time.Second
	oldestDatabase = 15
	leastDisk      = 200 << 20
	littleDisk     = 1 << 30
	longOpen       = time.Minute // for a transaction
)

// doctor runs the checks of servo doctor.
type doctor struct {
	env                    Environment
	flags                  *pflag.FlagSet
	http, database, dir    string
	oidc                   string // a file, as servers have it
	serverGiven, httpGiven bool   // named by a flag: then they must answer
	forProduction          bool
	longOpen               time.Duration // age of a transaction that is reported

	reachable bool // a server answers
}

// configuration checks that the file and the environment can be read.
func (d *doctor) configuration(context.Context) []finding {
	if _, err := readSettings(d.flags, d.env); err != nil {
		return failing(err)
	}
	path, _ := settingsPath(d.env)
	if _, err := os.Stat(path); err != nil {
		return one(passed, "no configuration file; the defaults and the environment hold", "")
	}
	return one(passed, path+" can be read", "")
}

// server checks that a server answers, and has this version.
func (d *doctor) server(ctx context.Context) []finding {
	settings, err := readSettings(d.flags, d.env)
	if err != nil {
		return one(skipped, "the configuration cannot be read", "")
	}
	where := strings.Join(settings.Servers, ", ")
	encryption, err := settings.encryption()
	if err != nil {
		return failing(err)
	}
	shown, err := settings.shown(ctx, io.Discard)
	if err != nil {
		return failing(err)
	}
	c, err := client.New(client.Options{Servers: settings.Servers, TLS: encryption, APIKey: shown, Patience: patience, UserAgent: "servo-doctor"})
	if err != nil {
		return one(failed, err.Error(), "")
	}
	defer func() { _ = c.Close() }() // its call has returned
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	begun := time.Now()
	status, err := c.Status().GetStatus(ctx, &servov1.GetStatusRequest{})
	if client.Is(err, client.Unauthenticated) || client.Is(err, client.Forbidden) {
		return one(doubted, "a server answers at "+where+", and wants a platform key", "set "+keyVariable+", or use servo login")
	}
	if err != nil {
		if d.serverGiven || where != defaultServer {
			return one(failed, "no server answers at "+where, "check that a server runs there: servo server")
		}
		return one(skipped, "no server answers at "+where, "")
	}
	d.reachable = true
	own := thisBuild().Version
	findings := one(passed, fmt.Sprintf("%s answers at %s", status.GetServer(), where), "")
	if status.GetVersion() != own {
		findings = append(findings, finding{
			Check: "version", Verdict: doubted, Message: fmt.Sprintf("the server is %s, this command is %s", status.GetVersion(), own),
			Remedy: "use the same version on both sides",
		})
	} else {
		findings = append(findings, finding{Check: "version", Verdict: passed, Message: "both sides are " + own})
	}
	findings = append(findings, checkClock("the server's database", begun, status.GetNow().AsTime()))
	workers, err := first(client.AllWorkers(ctx, c, &servov1.ListWorkersRequest{}), 0)
	if err != nil {
		return append(findings, failing(err)...)
	}
	return append(findings, checkWorkers(workers, status.GetPools())...)
}

// checkWorkers lists silent workers and dispatchers, and capabilities that tasks wait for and no worker
// has.
func checkWorkers(workers []*servov1.Worker, pools []*servov1.PoolStatus) (findings []finding) {
	for _, w := range workers {
		if !w.GetSilent() {
			continue
		}
		f := finding{Check: "workers", Verdict: doubted, Message: "worker " + clean(w.GetName()) + " is silent", Remedy: "check that it runs and reaches a server"}
		if server := w.GetDispatcherOf(); server != "" {
			f.Message = fmt.Sprintf("server %s, which sends the tasks of push pool %s, is silent", clean(server), clean(strings.Join(w.GetPools(), ", ")))
			f.Remedy = "check that the server runs; other servers send the pool's tasks meanwhile"
		}
		if w.GetLeasesEndAt() != nil {
			f.Message += fmt.Sprintf("; its %s end at %s", count(int(w.GetLeases()), "lease"), w.GetLeasesEndAt().AsTime().UTC().Format(time.RFC3339))
		}
		findings = append(findings, f)
	}
	for _, pool := range pools {
		for _, need := range pool.GetUnserved() {
			findings = append(findings, finding{
				Check: "workers", Verdict: doubted, Remedy: clean(need.GetRemedy()),
				Message: clean(fmt.Sprintf("%s of pool %s for %s: no live worker can run them", count(int(need.GetTasks()), "task"), pool.GetPool(), need.GetCapability())),
			})
		}
	}
	if len(findings) == 0 {
		return []finding{{Check: "workers", Verdict: passed, Message: count(len(workers), "worker") + " seen within two minutes, none is silent"}}
	}
	return findings
}

// checkClock compares a clock with ours: it was read somewhere between begun and now.
func checkClock(whose string, begun, theirs time.Time) finding {
	now := time.Now()
	off := time.Duration(0)
	switch {
	case theirs.Before(begun):
		off = theirs.Sub(begun)
	case theirs.After(now):
		off = theirs.Sub(now)
	}
	f := finding{Check: "clock", Verdict: passed, Message: fmt.Sprintf("%s and this machine agree within a second", whose)}
	switch {
	case off.Abs() > skewTooLarge:
		f.Verdict = failed
	case off.Abs() > skewNoticed:
		f.Verdict = doubted
	default:
		return f
	}
	f.Message = fmt.Sprintf("%s is %s off this machine's clock", whose, off.Round(time.Millisecond))
	f.Remedy = "set both by NTP"
	return f
}

// visitor is a client for REST with the TLS settings of the command line.
func (d *doctor) visitor() *http.Client {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	if settings, err := readSettings(d.flags, d.env); err == nil {
		transport.TLSClientConfig, _ = settings.encryption() // the check of the server reports errors of the files
	}
	return &http.Client{Transport: transport}
}

// readiness checks that the server reports that it is ready.
func (d *doctor) readiness(ctx context.Context) []finding {
	if !d.reachable && !d.httpGiven {
		return one(skipped, "no server", "")
	}
	if d.serverGiven && !d.httpGiven { // the default address can be that of another server
		return one(skipped, "the HTTP address of the server is not named; give it with --http", "")
	}
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	url := d.http + "/readyz"
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return one(failed, err.Error(), "give host:port with --http")
	}
	response, err := d.visitor().Do(request)
	if err != nil {
		if !d.httpGiven {
			return one(skipped, "no answer at "+d.http+"; name the server's address with --http", "")
		}
		return one(failed, "no answer at "+d.http, "give the server's HTTP address with --http")
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return one(failed, err.Error(), "")
	}
	if response.StatusCode != http.StatusOK {
		return one(failed, fmt.Sprintf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body))), "see the server's log")
	}
	return one(passed, url+" is ready", "")
}

// databases checks that the named database answers, is new enough, migrated, and on time.
func (d *doctor) databases(ctx context.Context) []finding {
	url, err := databaseURL(ctx, d.database)
	if err != nil {
		return one(skipped, "none is named by --database or "+databaseVariable, "")
	}
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	s, err := openDatabase(ctx, url)
	if err != nil {
		return failing(err)
	}
	defer s.Close()
	findings := one(passed, "it answers", "")
	version, err := daemon.DatabaseVersion(ctx, url)
	if err != nil {
		return append(findings, failing(err)...)
	}
	findings = append(findings, databaseVersion(version))
	status, err := s.MigrationStatus(ctx)
	if err == nil {
		err = refuseOtherSchema(status)
	}
	if err != nil {
		unmigrated := failing(err)
		unmigrated[0].Check = "migrations"
		return append(findings, unmigrated...)
	}
	findings = append(findings, finding{Check: "migrations", Verdict: passed, Message: count(len(status), "migration") + " applied"})
	begun := time.Now()
	var theirs time.Time
	err = s.Engine(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		theirs, err = tx.Clock(ctx)
		return err
	})
	if err != nil {
		return append(findings, failing(err)...)
	}
	findings = append(findings, checkClock("the database", begun, theirs))
	open, blind, err := daemon.OpenTransactions(ctx, url, d.longOpen)
	if err != nil {
		return append(findings, failing(err)...)
	}
	f := checkTransactions(open, blind)
	if d.forProduction && f.Verdict == doubted {
		f.Verdict = failed
	}
	return append(findings, f)
}

// checkTransactions reports the oldest one: an idle one keeps its locks, and any old one delays the
// vacuum.
func checkTransactions(open []daemon.Transaction, blind bool) finding {
	f := finding{Check: "transactions", Verdict: passed, Message: "none is older than " + asset.Duration(longOpen).String()}
	if len(open) == 0 && blind {
		f.Verdict, f.Message = doubted, "none of this role is older than "+asset.Duration(longOpen).String()+"; those of other roles cannot be seen"
		f.Remedy = "GRANT pg_read_all_stats TO the login role"
	}
	if len(open) == 0 {
		return f
	}
	worst := open[0]
	f.Verdict, f.Remedy = doubted, "let it end, such as a backup; until then nothing is vacuumed"
	f.Message = fmt.Sprintf("process %d (%s) has had one open for %s", worst.Process, clean(worst.Who), short(worst.Age))
	if worst.Idle {
		f.Verdict, f.Remedy = failed, fmt.Sprintf("end it: SELECT pg_terminate_backend(%d)", worst.Process)
		f.Message += " and is idle; others wait for its locks"
	}
	if worst.Holds {
		f.Message += "; subscriptions and streams wait for its end"
	}
	if n := len(open) - 1; n > 0 {
		f.Message += fmt.Sprintf(" (and %d more)", n)
	}
	return f
}

func databaseVersion(version string) finding {
	f := finding{Check: "database version", Verdict: passed, Message: "PostgreSQL " + version}
	digits := strings.TrimLeft(version, " ")
	for i, r := range digits {
		if r < '0' || r > '9' {
			digits = digits[:i]
			break
		}
	}
	if major, err := strconv.Atoi(digits); err != nil || major < oldestDatabase {
		f.Verdict, f.Remedy = failed, fmt.Sprintf("use PostgreSQL %d or newer", oldestDatabase)
	}
	return f
}

// binaries checks that servo dev finds a PostgreSQL.
func (*doctor) binaries(ctx context.Context) []finding {
	found, err := devpg.Installed(ctx)
	if err != nil {
		return failing(err)
	}
	return one(passed, found, "")
}

// addresses checks that the default addresses of servo dev are free.
func (d *doctor) addresses(ctx context.Context) []finding {
	if d.reachable || d.serverGiven {
		return one(skipped, "a server is named or runs here", "")
	}
	for _, f := range []struct{ flag, address string }{{"--http", defaultHTTP}, {"--grpc", defaultGRPC}} {
		if err := daemon.CheckAddress(ctx, f.flag, f.address); err != nil {
			return failing(err)
		}
	}
	return one(passed, defaultHTTP+" and "+defaultGRPC+" are free", "")
}

// disk checks that there is room for the database of servo dev.
func (d *doctor) disk(context.Context) []finding {
	dir := d.env.path(d.dir)
	for dir != "" { // the nearest existing one
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return one(failed, fmt.Sprintf("cannot look at %q: %v", dir, err), "name a directory with --data-dir")
	}
	free := stat.Bavail * uint64(stat.Bsize) //nolint:gosec // its type is not the same on all systems
	message := fmt.Sprintf("%.1f GiB free for %s", float64(free)/(1<<30), d.dir)
	switch {
	case free < leastDisk:
		return one(failed, message, "free some space, or name another directory with --data-dir")
	case free < littleDisk:
		return one(doubted, message, "free some space, or name another directory with --data-dir")
	}
	return one(passed, message, "")
}
