package view

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// FairnessModel is how tenants share the pools.
type FairnessModel struct {
	Scope     Scope
	Pool      string
	Pools     []PoolShares
	Truncated bool
}

// PoolShares is how tenants share one pool.
type PoolShares struct {
	Pool   string
	Shares []*servov1.Share
	Cut    int // so many tenants are not shown
}

// sharesShown is how many tenants of a pool are shown beside other pools.
const sharesShown = 50

// SharesOf puts shares together by pool, in their order. A pool that was asked for is shown
// whole.
func SharesOf(shares []*servov1.Share, pool string) []PoolShares {
	var out []PoolShares
	for _, s := range shares {
		if len(out) == 0 || out[len(out)-1].Pool != s.GetPool() {
			out = append(out, PoolShares{Pool: s.GetPool()})
		}
		last := &out[len(out)-1]
		if pool == "" && len(last.Shares) == sharesShown {
			last.Cut++
			continue
		}
		last.Shares = append(last.Shares, s)
	}
	return out
}

// shareBar is the width of the bar of a share.
const shareBar = 160

// barWidth is how long a part of the bar is: something that is there can be seen.
func barWidth(part float64) string {
	width := int(math.Round(min(max(part, 0), 1) * shareBar))
	if part > 0 {
		width = max(width, 2)
	}
	return strconv.Itoa(width)
}

// shareTone is how far a tenant that wants more is from its due. One that does not wait has
// what it wants.
func shareTone(s *servov1.Share) string {
	if s.GetWaiting() > 0 && s.GetShare() < s.GetEntitled()/2 && !atQuota(s) {
		return toneLate
	}
	return toneRun
}

// atQuota says that a tenant's own limit holds it back, and not the others.
func atQuota(s *servov1.Share) bool {
	return s.GetMaxConcurrentTasks() >= 0 && s.GetTenantInFlight() >= s.GetMaxConcurrentTasks()
}

func shareWords(s *servov1.Share) string {
	return fmt.Sprintf("has %s of the tasks in flight, is entitled to %s", Percent(s.GetShare()), Percent(s.GetEntitled()))
}

// workerSeconds is a deficit: what is owed has a plus.
func workerSeconds(s float64) string {
	rounded := math.Round(s)
	switch {
	case rounded > 0:
		return "+" + Count(int64(rounded), false) + " s"
	case rounded < 0:
		return "−" + Count(int64(-rounded), false) + " s"
	}
	return "0 s"
}

func quotaUse(s *servov1.Share) string {
	if s.GetMaxConcurrentTasks() < 0 {
		return "none"
	}
	return fmt.Sprintf("%d of %d", s.GetTenantInFlight(), s.GetMaxConcurrentTasks())
}

func weightText(weight float64) string { return strconv.FormatFloat(weight, 'g', 4, 64) }

// WorkersModel is the pools with who works for them.
type WorkersModel struct {
	Pool            string
	Pools           []*servov1.Pool
	Workers         []*servov1.Worker
	Dispatch        *servov1.DispatchStatus
	First           bool
	FirstAt, NextAt string
}

// unmanned says that tasks wait in a pool for which nobody works.
func unmanned(p *servov1.Pool) bool { return p.GetQueued() > 0 && p.GetWorkers() == 0 }

// unmannedPools are those, by name.
func (m WorkersModel) unmannedPools() string {
	var names []string
	for _, p := range m.Pools {
		if unmanned(p) {
			names = append(names, p.GetName())
		}
	}
	return strings.Join(names, ", ")
}

// sum adds something up over the pools.
func (m WorkersModel) sum(of func(*servov1.Pool) int64) (total int64) {
	for _, p := range m.Pools {
		total += of(p)
	}
	return total
}

// breakerLook is how the server that answers stands to the URL of a push pool.
func breakerLook(b *servov1.Breaker) Look {
	switch b.GetState() {
	case "closed":
		return Look{toneOK, "check", "is called"}
	case "half-open":
		return Look{toneWait, "half", "is tried"}
	}
	return Look{toneBad, "up", "fails, is left in peace"}
}

func poolLimit(p *servov1.Pool) string {
	if p.GetMaxConcurrency() < 0 {
		return "none"
	}
	return strconv.Itoa(int(p.GetMaxConcurrency()))
}

// maxUsersNamed is how many tenants of a shared pool a table names.
const maxUsersNamed = 3

// poolUsers says which tenants may use a pool.
func poolUsers(p *servov1.Pool) string {
	if p.GetOwner() != "" {
		return p.GetOwner()
	}
	names := p.GetTenants()
	switch more := len(names) - maxUsersNamed; {
	case len(names) == 0:
		return "all tenants"
	case more > 0:
		return strings.Join(names[:maxUsersNamed], ", ") + " and " + strconv.Itoa(more) + " more"
	}
	return strings.Join(names, ", ")
}

// LocksModel is the locks of a tenant.
type LocksModel struct {
	Scope           Scope
	Locks           []*servov1.Lock
	MayRelease      bool
	First           bool
	FirstAt, NextAt string
}
