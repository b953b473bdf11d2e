package engine

import (
	"fmt"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// LogRates bound the log bytes that a server stores. Bytes beyond them are dropped before they are stored,
// since the space of trimmed rows is not freed at once. Each has a burst, and a number of bytes per second
// afterwards. Zero fields have the defaults below.
type LogRates struct {
	AttemptBurst, AttemptRate int // bytes of one attempt
	TenantBurst, TenantRate   int // bytes of all attempts of a tenant
}

// The default rates. An attempt may fill its log at once; workers send less than the rate afterwards, and
// the end of the log last.
const (
	logAttemptBurst = store.MaxLogBytes
	logAttemptRate  = 16 << 10
	logTenantBurst  = 64 << 20
	logTenantRate   = 2 << 20
)

// forgetLogs is how long an idle meter is kept: longer than any of them takes to be full again.
const forgetLogs = 10 * time.Minute

// logBudget is a token bucket of bytes.
type logBudget struct {
	left float64
	at   time.Time
}

// refill adds the bytes that have accrued until now.
func (b *logBudget) refill(now time.Time, burst, rate int) {
	if b.at.IsZero() {
		b.left = float64(burst)
	} else {
		b.left = min(float64(burst), b.left+now.Sub(b.at).Seconds()*float64(rate))
	}
	b.at = now
}

// attemptMeter is the budget of an attempt, and how much was dropped since its last stored chunk.
type attemptMeter struct {
	logBudget

	dropping bool
	dropped  int
}

// logMeter decides which chunks are stored. It is in the memory of one server: an attempt whose worker
// sends to several servers has the rate of each.
type logMeter struct {
	rates LogRates

	mu       sync.Mutex
	attempts map[attemptToken]*attemptMeter
	tenants  map[id.Tenant]*logBudget
	swept    time.Time
}

type attemptToken struct {
	store.TaskKey

	token int64
}

func newLogMeter(rates LogRates) *logMeter {
	for _, f := range []struct {
		field *int
		value int
	}{
		{&rates.AttemptBurst, logAttemptBurst},
		{&rates.AttemptRate, logAttemptRate},
		{&rates.TenantBurst, logTenantBurst},
		{&rates.TenantRate, logTenantRate},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return &logMeter{rates: rates, attempts: map[attemptToken]*attemptMeter{}, tenants: map[id.Tenant]*logBudget{}}
}

// The lines that stand for dropped lines. They are documented: keep them.
const (
	logDropping = "WARN servo drops log lines of this attempt: more than %d bytes a second\n"
	logDropped  = "WARN servo dropped %d bytes of this attempt's log: more than %d bytes a second\n"
	logTime     = "2006-01-02T15:04:05.000Z"
)

// pass returns the chunk to store: the whole chunk, the chunk after a line that counts the dropped lines
// before it, or the line that announces the dropping. Chunks in between are not stored.
func (m *logMeter) pass(c LogChunk, now time.Time) (LogChunk, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	key := attemptToken{c.TaskKey, c.Token}
	if m.attempts[key] == nil {
		m.attempts[key] = &attemptMeter{}
	}
	if m.tenants[c.Tenant] == nil {
		m.tenants[c.Tenant] = &logBudget{}
	}
	attempt, tenant := m.attempts[key], m.tenants[c.Tenant]
	attempt.refill(now, m.rates.AttemptBurst, m.rates.AttemptRate)
	tenant.refill(now, m.rates.TenantBurst, m.rates.TenantRate)
	size, rate := float64(len(c.Text)), m.rates.AttemptRate
	if attempt.left >= size {
		rate = m.rates.TenantRate
	}
	at := c.At
	if at.IsZero() {
		at = now
	}
	stamp := at.UTC().Format(logTime) + " "
	if attempt.left < size || tenant.left < size {
		attempt.dropped += len(c.Text)
		if attempt.dropping {
			return c, false
		}
		attempt.dropping = true
		c.Text = stamp + fmt.Sprintf(logDropping, rate)
		return c, true
	}
	attempt.left -= size
	tenant.left -= size
	if attempt.dropping {
		c.Text = stamp + fmt.Sprintf(logDropped, attempt.dropped, m.rates.AttemptRate) + c.Text
		attempt.dropping, attempt.dropped = false, 0
	}
	return c, true
}

// sweep deletes the meters of attempts that have ended.
func (m *logMeter) sweep(now time.Time) {
	if now.Sub(m.swept) < forgetLogs {
		return
	}
	m.swept = now
	for key, a := range m.attempts {
		if now.Sub(a.at) > forgetLogs {
			delete(m.attempts, key)
		}
	}
	for tenant, b := range m.tenants {
		if now.Sub(b.at) > forgetLogs {
			delete(m.tenants, tenant)
		}
	}
}
