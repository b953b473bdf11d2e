package view

import (
	"fmt"
	"math"
	"strconv"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// FairnessModel is the shares of tenants in the pools.
type FairnessModel struct {
	Scope     Scope
	Pool      string
	Pools     []PoolShares
	Truncated bool
}

// PoolShares is the shares of tenants in one pool.
type PoolShares struct {
	Pool   string
	Shares []*servov1.Share
	Cut    int // tenants that are not shown
}

// sharesShown is the number of tenants of a pool that are shown beside other pools.
const sharesShown = 50

// SharesOf groups shares by pool, in their order. A pool that the visitor filters by is shown
// completely.
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

// shareWidth is the width of the bar of a share, in pixels.
const shareWidth = 160

// barWidth is the width of a part of the bar; every part above zero is visible.
func barWidth(part float64) int {
	width := int(math.Round(min(max(part, 0), 1) * shareWidth))
	if part > 0 {
		width = max(width, 2)
	}
	return width
}

// shareTone marks a waiting tenant with less than half of its entitled share. A tenant without
// waiting tasks has what it wants.
func shareTone(s *servov1.Share) string {
	if s.GetWaiting() > 0 && s.GetShare() < s.GetEntitled()/2 && !atQuota(s) {
		return toneLate
	}
	return toneRun
}

// atQuota reports whether the tenant's own limit holds it back.
func atQuota(s *servov1.Share) bool {
	return s.GetMaxConcurrentTasks() >= 0 && s.GetTenantInFlight() >= s.GetMaxConcurrentTasks()
}

func shareWords(s *servov1.Share) string {
	return fmt.Sprintf("%s of the tasks in flight, entitled to %s", Percent(s.GetShare()), Percent(s.GetEntitled()))
}

// workerSeconds is a deficit with its sign.
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
		return "no limit"
	}
	return fmt.Sprintf("%d of %d", s.GetTenantInFlight(), s.GetMaxConcurrentTasks())
}

func weightText(weight float64) string { return strconv.FormatFloat(weight, 'g', 4, 64) }
