package view

import (
	"strconv"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// WorkersModel is the pools and their workers.
type WorkersModel struct {
	Paging

	Pool     string
	Pools    []*servov1.Pool
	Workers  []*servov1.Worker
	Dispatch *servov1.DispatchStatus
}

// hasNoWorkers reports whether a pool has queued tasks and no workers.
func hasNoWorkers(p *servov1.Pool) bool { return p.GetQueued() > 0 && p.GetWorkers() == 0 }

// poolsWithoutWorkers are the names of pools with queued tasks and no workers.
func (m WorkersModel) poolsWithoutWorkers() string {
	var names []string
	for _, p := range m.Pools {
		if hasNoWorkers(p) {
			names = append(names, p.GetName())
		}
	}
	return strings.Join(names, ", ")
}

func (m WorkersModel) poolOptions() []Option {
	options := []Option{{"", "any pool"}}
	for _, p := range m.Pools {
		options = append(options, Option{p.GetName(), p.GetName()})
	}
	return options
}

// sum adds a number of each pool.
func (m WorkersModel) sum(of func(*servov1.Pool) int64) (total int64) {
	for _, p := range m.Pools {
		total += of(p)
	}
	return total
}

// breakerLook is the health of the endpoint of a push pool, as seen by the answering server.
func breakerLook(b *servov1.Breaker) Look {
	switch b.GetState() {
	case "closed":
		return Look{toneOK, "check", "healthy"}
	case "half-open":
		return Look{toneWait, "half", "probing"}
	}
	return Look{toneBad, "up", "failing, calls suspended"}
}

// limitText is a limit; a negative one is none.
func limitText(limit int32) string {
	if limit < 0 {
		return "no limit"
	}
	return Count(limit, false)
}

// maxTenantsNamed is the number of tenants of a shared pool that a table names.
const maxTenantsNamed = 3

// poolTenants names the tenants that may use a pool.
func poolTenants(p *servov1.Pool) string {
	if p.GetOwner() != "" {
		return p.GetOwner()
	}
	names := p.GetTenants()
	switch more := len(names) - maxTenantsNamed; {
	case len(names) == 0:
		return "all tenants"
	case more > 0:
		return strings.Join(names[:maxTenantsNamed], ", ") + " and " + strconv.Itoa(more) + " more"
	}
	return strings.Join(names, ", ")
}
