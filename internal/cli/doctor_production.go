package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/store"
)

// Limits for production.
const (
	certificateSoon = 14 * 24 * time.Hour // a certificate should be renewed earlier
	archiveTooOld   = 24 * time.Hour
)

// production checks the requirements of production.
func (d *doctor) production(ctx context.Context) []finding {
	settings, err := readSettings(d.flags, d.env)
	if err != nil {
		return one(failed, "the configuration cannot be read", "")
	}
	ctx, cancel := context.WithTimeout(ctx, 4*doctorPatience)
	defer cancel()
	var all []finding
	for _, server := range settings.Servers {
		all = append(all, checkTLS(ctx, server, settings))
	}
	all = append(all, checkAuthentication(ctx, settings))
	all = append(all, d.checkIssuers(ctx)...)
	return append(all, d.checkGuards(ctx)...)
}

// checkTLS checks that a server's address uses TLS, or that only this machine reaches it.
func checkTLS(ctx context.Context, server string, settings settings) finding {
	f := finding{Check: "TLS", Verdict: failed}
	address, wanted := strings.CutPrefix(server, "https://")
	state, err := handshake(ctx, address, settings)
	if err == nil {
		return checkCertificate(address, state.PeerCertificates[0], time.Now())
	}
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var other x509.HostnameError
	switch plain := errors.As(err, new(tls.RecordHeaderError)); {
	case errors.As(err, &unknown), errors.As(err, &invalid), errors.As(err, &other):
		f.Message, f.Remedy = address+" has an untrusted certificate: "+err.Error(), "name the CA with --tls-ca, or renew the certificate for this name"
	case plain && !wanted && daemon.IsLoopback(address):
		return checkLoopbackOnly(ctx, address)
	case plain:
		f.Message, f.Remedy = address+" speaks plain text", "start the server with --tls-cert and --tls-key, or let it listen on loopback behind a proxy that speaks TLS"
	default:
		f.Message, f.Remedy = "no server answers at "+address+": "+reason(err.Error()), "check that a server runs there: servo server"
	}
	return f
}

// handshake connects to an address with TLS.
func handshake(ctx context.Context, address string, settings settings) (state tls.ConnectionState, err error) {
	config, err := settings.encryption()
	if err != nil {
		return state, err
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.NextProtos = []string{"h2"}
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return state, err
	}
	if over, ok := conn.(*tls.Conn); ok {
		state = over.ConnectionState()
	}
	return state, conn.Close()
}

// checkCertificate checks that a certificate does not expire soon.
func checkCertificate(address string, leaf *x509.Certificate, now time.Time) finding {
	f := finding{Check: "TLS", Verdict: passed, Message: fmt.Sprintf("%s speaks TLS; its certificate lasts until %s", address, leaf.NotAfter.UTC().Format(time.DateOnly))}
	if leaf.NotAfter.Sub(now) < certificateSoon {
		f.Verdict, f.Remedy = doubted, "renew it: the server reads the files again by itself"
	}
	return f
}

// checkLoopbackOnly checks that a server without TLS does not listen on other addresses of this
// machine.
func checkLoopbackOnly(ctx context.Context, address string) finding {
	_, port, _ := net.SplitHostPort(address)
	own, _ := net.InterfaceAddrs() // without any no other machine reaches it
	for _, a := range own {
		prefix, ok := a.(*net.IPNet)
		if !ok || prefix.IP.IsLoopback() || prefix.IP.IsLinkLocalUnicast() {
			continue
		}
		reached := net.JoinHostPort(prefix.IP.String(), port)
		if conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", reached); err == nil {
			_ = conn.Close() // that it was opened is enough
			return finding{
				Check: "TLS", Verdict: failed, Message: "other machines reach it in plain text at " + reached,
				Remedy: "start the server with --tls-cert and --tls-key, or let it listen on 127.0.0.1 alone",
			}
		}
	}
	return finding{Check: "TLS", Verdict: passed, Message: address + " speaks plain text on this machine only; use TLS in the proxy before it"}
}

// checkAuthentication checks that calls without a key are refused.
func checkAuthentication(ctx context.Context, settings settings) finding {
	f := finding{Check: "authentication", Verdict: failed}
	encryption, err := settings.encryption()
	if err != nil {
		return finding{Check: f.Check, Verdict: failed, Message: err.Error()}
	}
	c, err := client.New(client.Options{Servers: settings.Servers, TLS: encryption, Patience: patience, UserAgent: "servo-doctor"})
	if err != nil {
		f.Message = err.Error()
		return f
	}
	defer func() { _ = c.Close() }() // its call has returned
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	_, err = c.Tenants().ListTenants(ctx, &servov1.ListTenantsRequest{PageSize: 1})
	switch {
	case client.Is(err, client.Unauthenticated):
		f.Verdict, f.Message = passed, "a call without a key is refused"
	case err == nil:
		f.Message, f.Remedy = "a call without a key is answered", "start the servers without --open, and create the first key: servo keys bootstrap"
	default:
		f.Message, f.Remedy = "unknown: "+err.Error(), "check that a server runs there: servo server"
	}
	return f
}

// checkGuards runs the checks that need the database.
func (d *doctor) checkGuards(ctx context.Context) []finding {
	url, err := databaseURL(ctx, d.database)
	if err != nil {
		return []finding{{Check: "database", Verdict: failed, Message: "none is named", Remedy: "name it with --database or " + databaseVariable + ", as the servers do"}}
	}
	s, err := openDatabase(ctx, url)
	if err != nil {
		return []finding{} // reported by the check of the database
	}
	defer s.Close()
	guard, err := daemon.ReadGuard(ctx, url)
	if err != nil {
		return under("database", failing(err))
	}
	now := time.Now()
	all := []finding{checkRowSecurity(guard), checkLoginRole(guard), checkFsync(guard), checkArchive(guard, now), checkDatabaseTLS(url), checkDatabaseSettings(ctx, s)}
	servers, err := s.Servers(ctx)
	if err != nil {
		return append(all, under("versions", failing(err))...)
	}
	all = append(all, checkVersions(servers), d.checkDatabaseClock(ctx, s))
	channels, err := s.Channels(ctx, id.Tenant{})
	if err != nil {
		return append(all, under("alerts", failing(err))...)
	}
	f := finding{Check: "alerts", Verdict: passed, Message: count(len(channels), "channel") + " of the installation"}
	if len(channels) == 0 {
		f.Verdict, f.Message = failed, "no alert channel of the installation"
		f.Remedy = "create a channel: servo alerts channels create NAME --platform --url URL"
	}
	return append(all, f)
}

// under gives findings the name of a check.
func under(check string, found []finding) []finding {
	for i := range found {
		found[i].Check = check
	}
	return found
}

// checkRowSecurity checks that the policies bind all roles.
func checkRowSecurity(g daemon.Guard) finding {
	f := finding{Check: "row-level security", Verdict: failed}
	switch {
	case len(g.Open) > 0:
		f.Message = "not forced on " + strings.Join(g.Open, ", ")
		f.Remedy = "find out who has changed it, then: ALTER TABLE servo." + g.Open[0] + " ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
	case len(g.Roles) > 0:
		f.Message = strings.Join(g.Roles, " and ") + " has more rights than its transactions need"
		f.Remedy = "revoke them: no login, no superuser, no BYPASSRLS, no table of its own, no membership"
	default:
		f.Verdict, f.Message = passed, "forced on every table of tenants; the roles of transactions bypass none"
	}
	return f
}

// checkLoginRole checks that the role of the connection cannot bypass the policies.
func checkLoginRole(g daemon.Guard) finding {
	f := finding{Check: "database role", Verdict: passed, Message: g.Login + " inherits nothing and sees no row without taking a role"}
	remedy := "let servers log in with a role that may only SET servo_engine and servo_tenant (docs/guides/operate.md)"
	switch {
	case g.Superuser:
		f.Verdict, f.Message, f.Remedy = failed, g.Login+" is a superuser", remedy
	case g.BypassRLS:
		f.Verdict, f.Message, f.Remedy = failed, g.Login+" is above the policies (BYPASSRLS)", remedy
	case len(g.Inherits) > 0:
		f.Verdict, f.Message = failed, g.Login+" inherits from "+strings.Join(g.Inherits, ", ")
		f.Remedy = fmt.Sprintf("PostgreSQL 15: ALTER ROLE %s NOINHERIT; 16 and newer: GRANT %s TO %s WITH INHERIT FALSE, by the role that granted it",
			g.Login, g.Inherits[0], g.Login)
	case g.Sees > 0:
		f.Verdict, f.Message, f.Remedy = failed, g.Login+" reads rows of tenants without taking a role", remedy
	}
	return f
}

// checkFsync checks that commits are on disk.
func checkFsync(g daemon.Guard) finding {
	if !g.Fsync {
		return finding{Check: "fsync", Verdict: failed, Message: "it is off: a power cut can ruin the database", Remedy: "set fsync = on in postgresql.conf"}
	}
	if !g.FullPages {
		return finding{Check: "fsync", Verdict: failed, Message: "full_page_writes is off: a power cut can ruin the database", Remedy: "set full_page_writes = on in postgresql.conf"}
	}
	return finding{Check: "fsync", Verdict: passed, Message: "on"}
}

// checkArchive checks that the write-ahead log is archived or replicated. PostgreSQL does not know
// of copies of disks and of dumps; production needs the log.
func checkArchive(g daemon.Guard, now time.Time) finding {
	f := finding{Check: "backups", Verdict: failed, Remedy: "archive the write-ahead log and take base backups, and practise a restore"}
	switch {
	case g.Archives && g.Failing:
		f.Verdict, f.Message, f.Remedy = failed, "archiving of the write-ahead log fails", "see the log of PostgreSQL; it keeps the files until its disk is full"
	case g.Archives && g.Archived != nil && now.Sub(*g.Archived) < archiveTooOld:
		f.Verdict, f.Message, f.Remedy = passed, "the write-ahead log was archived at "+g.Archived.UTC().Format(time.RFC3339), ""
	case g.Archives && g.Archived != nil:
		f.Message = "the write-ahead log was archived last at " + g.Archived.UTC().Format(time.RFC3339)
	case g.Archives:
		f.Message = "archiving is on, and nothing was archived yet"
	case g.Replicates || g.Standbys > 0:
		f.Verdict, f.Message, f.Remedy = passed, "the write-ahead log is replicated; check that it can be restored", ""
	default:
		f.Message = "none found: no archiving, and no replication of the write-ahead log"
	}
	return f
}

// checkVersions checks that all live servers have one version.
func checkVersions(servers []store.Server) finding {
	f := finding{Check: "versions", Verdict: failed}
	var versions, each []string
	for _, s := range servers {
		versions = append(versions, s.Version)
		each = append(each, clean(s.Name)+" "+clean(s.Version))
	}
	slices.Sort(versions)
	switch versions = slices.Compact(versions); len(versions) {
	case 0:
		f.Message, f.Remedy = "no server is alive on this database", "check that --database is the database of the servers"
	case 1:
		f.Verdict, f.Message = passed, fmt.Sprintf("%s, all of %s", count(len(servers), "server"), versions[0])
	default:
		f.Message, f.Remedy = "servers differ: "+strings.Join(each, ", "), "finish the upgrade: one version on all servers"
	}
	return f
}

// checkDatabaseClock compares the clock of the database with this machine's, as closely as schedules need.
func (d *doctor) checkDatabaseClock(ctx context.Context, s *store.Store) finding {
	begun := time.Now()
	var theirs time.Time
	err := s.Engine(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		theirs, err = tx.Clock(ctx)
		return err
	})
	if err != nil {
		return under("clock", failing(err))[0]
	}
	f := checkClock("the database", begun, theirs)
	if f.Verdict == doubted { // more than a second
		f.Verdict = failed
	}
	return f
}
