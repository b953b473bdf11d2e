package client

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// policy is the name of the client's load balancing: round robin over the servers that are
// connected, without those that fell silent.
const policy = "servo_round_robin"

// registerPolicy makes the policy known to gRPC, which keeps one list for the process.
var registerPolicy = sync.OnceFunc(func() {
	balancer.Register(base.NewBalancerBuilder(policy, pickers{}, base.Config{}))
})

type serverKey struct{}

// addressOf is the address of a server for the resolver. The balancer finds the server in it.
func addressOf(s *server, address resolver.Address) resolver.Address {
	address.Attributes = attributes.New(serverKey{}, s)
	return address
}

// pickers builds a picker each time that a connection is made or lost.
type pickers struct{}

// Build implements base.PickerBuilder.
func (pickers) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	p := &picker{}
	for conn, at := range info.ReadySCs {
		s, _ := at.Address.Attributes.Value(serverKey{}).(*server)
		p.ready = append(p.ready, readyServer{server: s, conn: conn})
	}
	return p
}

type picker struct {
	ready []readyServer
	next  atomic.Uint32
}

type readyServer struct {
	server *server
	conn   balancer.SubConn
}

// errNoOtherServer ends a try that may not use any server that is connected.
var errNoOtherServer = status.Error(codes.Unavailable, "no other server is connected")

// Pick implements balancer.Picker. A call uses a server that was put aside only if there is no
// other; a hedge never does.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	t := tryOf(info.Ctx)
	first := int(p.next.Add(1) % uint32(len(p.ready))) //nolint:gosec // a handful of servers
	var aside *readyServer
	for i := range p.ready {
		r := &p.ready[(first+i)%len(p.ready)]
		switch {
		case t.excludes(r.server):
		case r.server.aside.Load() && !t.isProbe():
			aside = r
		default:
			return r.picked(t), nil
		}
	}
	if aside != nil && !t.isHedge() {
		return aside.picked(t), nil
	}
	return balancer.PickResult{}, errNoOtherServer
}

func (r *readyServer) picked(t *try) balancer.PickResult {
	if t == nil {
		return balancer.PickResult{SubConn: r.conn}
	}
	r.server.opened(t)
	return balancer.PickResult{SubConn: r.conn, Done: func(balancer.DoneInfo) { r.server.closed(t) }}
}
