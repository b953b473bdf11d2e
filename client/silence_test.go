package client_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// hangable is a line to a fake server that can hang: connections stay open, and nothing passes.
type hangable struct {
	fake

	address string

	mu    sync.Mutex
	moved sync.Cond
	hung  bool
}

func newHangable(t *testing.T) *hangable {
	t.Helper()
	behind, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &hangable{}
	h.moved.L = &h.mu
	h.serve(t, behind)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h.address = front.Addr().String()
	var lines sync.WaitGroup
	t.Cleanup(func() {
		_ = front.Close()
		h.hang(false)
		lines.Wait()
	})
	lines.Go(func() {
		for {
			in, err := front.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", behind.Addr().String())
			if err != nil {
				_ = in.Close()
				continue
			}
			lines.Go(func() { h.pass(out, in) })
			lines.Go(func() { h.pass(in, out) })
		}
	})
	return h
}

func (h *hangable) pass(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		h.mu.Lock()
		for h.hung {
			h.moved.Wait()
		}
		h.mu.Unlock()
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

func (h *hangable) hang(hung bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hung = hung
	h.moved.Broadcast()
}

func (h *hangable) called() int {
	calls, _ := h.seen()
	return len(calls)
}

// TestSilentServer: connections to a hung server stay open, so gRPC itself would wait for it.
// Without hedging, none of these calls returns before keepalive closes the connection.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	patientPair := func(t *testing.T, patience time.Duration) (*client.Client, [2]*hangable) {
		t.Helper()
		servers := [2]*hangable{newHangable(t), newHangable(t)}
		c := open(t, client.WithSilencePatience(client.Options{Servers: []string{servers[0].address, servers[1].address}}, patience))
		for servers[0].called() == 0 || servers[1].called() == 0 { // both are connected
			_, err := c.Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
			require.NoError(t, err)
		}
		return c, servers
	}
	pair := func(t *testing.T) (*client.Client, [2]*hangable) { t.Helper(); return patientPair(t, 0) }

	t.Run("calls to it are answered by another server, once; then it is avoided until it answers", func(t *testing.T) {
		t.Parallel()
		c, servers := pair(t)
		servers[0].hang(true)
		for range 4 { // round robin: some are sent to the hung server
			got, err := c.Runs().GetRun(t.Context(), &servov1.GetRunRequest{Run: "r"})
			require.NoError(t, err)
			require.Equal(t, "r", got.GetId())
		}
		before := servers[0].called()
		for range 50 {
			_, err := c.Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
			require.NoError(t, err)
		}
		require.Equal(t, before, servers[0].called())
		servers[0].hang(false)
		for before = servers[0].called(); servers[0].called() == before; {
			_, err := c.Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
			require.NoError(t, err)
		}
	})

	t.Run("a parked claim that was acknowledged is sent to another server when its own falls silent", func(t *testing.T) {
		t.Parallel()
		c, servers := pair(t)
		parked := make(chan *hangable, 1)
		var claims atomic.Int32
		for _, s := range servers {
			s.park = func(ctx context.Context, request *servov1.ClaimRequest) *servov1.ClaimResponse {
				if claims.Add(1) == 1 {
					_ = grpc.SendHeader(ctx, nil)
					parked <- s
					<-ctx.Done()
				}
				return &servov1.ClaimResponse{Leases: []*servov1.Lease{{Lease: request.GetClaimId()}}}
			}
		}
		go func() { (<-parked).hang(true) }()
		got, err := c.Workers().Claim(t.Context(), &servov1.ClaimRequest{ClaimId: "the same"})
		require.NoError(t, err)
		require.Equal(t, "the same", got.GetLeases()[0].GetLease())
	})

	t.Run("a server that is slow and alive is not hedged", func(t *testing.T) {
		t.Parallel()
		c, servers := patientPair(t, time.Minute) // a busy machine may answer a probe late
		var claims atomic.Int32
		for _, s := range servers {
			s.park = func(ctx context.Context, _ *servov1.ClaimRequest) *servov1.ClaimResponse {
				claims.Add(1)
				_ = grpc.SendHeader(ctx, nil)
				<-ctx.Done()
				return nil
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // two probes
		defer cancel()
		_, _ = c.Workers().Claim(ctx, &servov1.ClaimRequest{}) // it ends here or there, whichever notices the deadline first
		require.EqualValues(t, 1, claims.Load())
	})
}
