package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"go.arco.dev/servo"
	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest/ledger"
)

// slots is how many tasks a worker executes at once.
const slots = 4

// work is the life of a worker.
func work(ctx context.Context, r role, log *slog.Logger) int {
	l, err := ledger.Open(r.Ledger)
	if err != nil {
		log.Error("ledger", "error", err)
		return exitBroken
	}
	h := &hands{name: r.Name, ledger: l, log: log, leases: map[string]holding{}}
	h.lure.Store("")
	go listen(log, h.receive)
	conn, hangUp, err := dial(r, log, h.observe)
	if err != nil {
		log.Error("connection", "error", err)
		return exitBroken
	}
	w := servo.NewWorker(servo.WorkerOptions{
		Conn: conn, ID: r.Name, Concurrency: slots, Lease: leaseTime, Grace: graceTime, Logger: log,
	})
	for _, s := range shapes() {
		for _, n := range s.nodes {
			servo.Asset(w, n.key, h.asset(n))
		}
	}
	servo.Asset(w, partKey, h.asset(node{key: partKey}))
	announce(wordReady)
	err = errors.Join(w.Run(ctx), hangUp())
	if err == nil {
		return exitGood
	}
	log.Error("worker", "error", err)
	if fault.Is(err, fault.Unavailable) {
		return exitUnsaid
	}
	return exitBroken
}

// dial connects to the servers: as package servo does by itself, or bare, without anything
// between the worker and the network that would repeat a call for it.
func dial(r role, log *slog.Logger, observe grpc.UnaryClientInterceptor) (grpc.ClientConnInterface, func() error, error) {
	watched := grpc.WithChainUnaryInterceptor(observe)
	if !r.Bare {
		c, err := client.New(client.Options{
			Servers: r.Servers, Patience: 2 * time.Second, UserAgent: r.Name, Logger: log, DialOptions: []grpc.DialOption{watched},
		})
		if err != nil {
			return nil, nil, err
		}
		return c.Conn(), c.Close, nil
	}
	var addresses []resolver.Address
	for _, server := range r.Servers {
		addresses = append(addresses, resolver.Address{Addr: server})
	}
	list := manual.NewBuilderWithScheme("fleet")
	list.InitialState(resolver.State{Addresses: addresses})
	conn, err := grpc.NewClient("fleet:///servers", grpc.WithResolvers(list), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`), watched)
	if err != nil {
		return nil, nil, err
	}
	return conn, conn.Close, nil
}

// params are the parameters of every run.
type params struct {
	Key string `json:"key"`
}

// made is what every task returns.
type made struct {
	Value string            `json:"value"`
	Stamp string            `json:"stamp"` // of this execution alone
	Saw   map[string]string `json:"saw"`   // the stamps of the upstreams, by place
}

// hands is what a worker's functions share.
type hands struct {
	name   string
	ledger *ledger.Ledger
	log    *slog.Logger
	lure   atomic.Value // what the next task is asked to do, a word; "" is nothing

	mu     sync.Mutex
	leases map[string]holding
}

func (h *hands) receive(word string) {
	if word != wordBehave {
		h.lure.Store(word)
		return
	}
	if h.lure.Swap("") != "" {
		announce(wordBehaved) // else a task has caught it, and reports so
	}
}

// caught reports whether a task should do one of these now. It notifies the test, once.
func (h *hands) caught(words ...string) string {
	for _, word := range words {
		if h.lure.CompareAndSwap(word, "") {
			announce(wordCaught)
			return word
		}
	}
	return ""
}

// note writes into the ledger. Without it the process must not continue.
func (h *hands) note(n note) {
	n.At = time.Now()
	if err := h.ledger.Write(n); err != nil {
		h.log.Error("ledger", "error", err)
		os.Exit(exitBroken)
	}
}

// asset is the function of a node.
func (h *hands) asset(n node) func(context.Context, *servo.Task, params) (made, error) {
	return func(ctx context.Context, task *servo.Task, p params) (made, error) {
		of := place{task.Asset, task.Partition}
		log := func(what, stamp string) { h.note(note{Task: task.ID, Attempt: task.Attempt, What: what, Stamp: stamp}) }
		log(noteBegin, "")
		h.awaitFrozen(ctx, task)
		if h.caught(wordLeave) != "" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
			<-ctx.Done()
		}
		pause(ctx, timeOf(p.Key, of, task.Attempt))
		if ctx.Err() != nil {
			return made{}, context.Cause(ctx)
		}
		if task.Attempt == 1 && failsFirst(p.Key, of) {
			log(noteNone, "")
			return made{}, servo.Fail(servo.NetworkError, errors.New("as it was meant to"))
		}
		m, err := h.do(ctx, task, n, p.Key)
		if err != nil {
			log(noteNone, "")
			return made{}, err
		}
		log(noteResult, m.Stamp)
		switch h.caught(wordFreeze, wordDie) {
		case wordFreeze:
			h.leaveMark(task.ID)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // returns when the test sends SIGCONT
		case wordDie:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return m, nil
	}
}

// mark is a file that stands for a task whose worker is stopped with a result to report.
func (h *hands) mark(task string) string {
	return filepath.Join(filepath.Dir(h.ledger.Path()), task+".frozen")
}

func (h *hands) leaveMark(task string) {
	if err := os.WriteFile(h.mark(task), nil, 0o600); err != nil {
		h.log.Error("mark", "error", err)
		os.Exit(exitBroken)
	}
}

// frozenPatience is how long the next attempt waits for the frozen one at most.
const frozenPatience = 6 * time.Second

// awaitFrozen keeps an attempt at its task until the frozen worker of the one before has come
// back and was answered: its late report then meets a task that another worker holds.
func (h *hands) awaitFrozen(ctx context.Context, task *servo.Task) {
	ctx, cancel := context.WithTimeout(ctx, frozenPatience)
	defer cancel()
	for task.Attempt > 1 && ctx.Err() == nil {
		if _, err := os.Stat(h.mark(task.ID)); err != nil {
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// do makes the result of a task.
func (h *hands) do(ctx context.Context, task *servo.Task, n node, key string) (made, error) {
	of := place{task.Asset, task.Partition}
	m := made{Stamp: h.name + "/" + uuid.NewString(), Saw: map[string]string{}}
	seen := map[string]string{}
	see := func(u place, result made) { seen[u.String()], m.Saw[u.String()] = result.Value, result.Stamp }
	for _, u := range n.upstream {
		result, err := servo.Upstream[made](ctx, task, u)
		if err != nil {
			return m, err
		}
		see(place{Asset: u}, result)
	}
	switch n.job {
	case scan:
		var add []servo.Mapped
		for _, p := range parts() {
			add = append(add, servo.Mapped{Asset: p.Asset, Partition: p.Partition})
		}
		if _, err := task.FanOut(ctx, add, servo.Barrier()); err != nil {
			return m, err
		}
	case join:
		for part, err := range servo.MappedResults[made](ctx, task, partKey) {
			if err != nil {
				return m, err
			}
			see(place{partKey, part.Partition}, part.Value)
		}
	case plain, pages:
	}
	m.Value = combine(key, of, seen)
	if n.job != pages {
		return m, nil
	}
	var err error
	m.Value, err = h.read(ctx, task, key, m.Value)
	return m, err
}

// read goes through the pages of a task, on from its cursor.
func (h *hands) read(ctx context.Context, task *servo.Task, key, value string) (string, error) {
	page := 0
	if at := task.Cursor(); at != "" {
		number, rest, _ := strings.Cut(at, ":")
		var err error
		if page, err = strconv.Atoi(number); err != nil {
			return "", fmt.Errorf("cursor %q: %w", at, err)
		}
		value = rest
	}
	for page < pagesEach {
		value = turn(value, page, page+1)
		page++
		next := fmt.Sprintf("%d:%s", page, value)
		task.Progress(servo.Progress{Phase: "READ", Fraction: float32(page) / pagesEach})
		task.Log().Info("read a page", "page", page)
		if yieldsAt(key, place{task.Asset, task.Partition}, page) {
			return "", servo.Yield(next)
		}
		if err := task.Advance(ctx, next); err != nil {
			return "", err
		}
	}
	return value, nil
}

// observe notes what the worker is answered, try by try.
func (h *hands) observe(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := invoke(ctx, method, req, reply, conn, opts...); err != nil {
		return err
	}
	switch answer := reply.(type) {
	case *servov1.ClaimResponse:
		h.mu.Lock()
		for _, l := range answer.GetLeases() {
			h.leases[l.GetLease()] = holding{l.GetTask(), int(l.GetAttempt())}
		}
		h.mu.Unlock()
	case *servov1.ReportResponse:
		request, _ := req.(*servov1.ReportRequest)
		for i, a := range answer.GetAnswers() {
			h.answered(request.GetItems()[i], a)
		}
	case *servov1.HeartbeatResponse:
		request, _ := req.(*servov1.HeartbeatRequest)
		for i, a := range answer.GetLeases() {
			if !a.GetHeld() {
				of := h.holds(request.GetLeases()[i].GetLease())
				h.note(note{Task: of.task, Attempt: of.attempt, What: noteLost})
			}
		}
	}
	return nil
}

func (h *hands) holds(lease string) holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leases[lease]
}

// answered notes the answers to what ends an attempt, and all refusals.
func (h *hands) answered(item *servov1.ReportItem, answer *servov1.ReportAnswer) {
	of := h.holds(item.GetLease())
	n := note{
		Task: of.task, Attempt: of.attempt, What: noteAnswer, Action: actionOf(item), Refused: answer.GetError().GetCode(), Repeat: answer.GetRepeat(),
	}
	if n.Refused != "" || ends(n.Action) {
		h.note(n)
		_ = os.Remove(h.mark(of.task)) // most have none
	}
}

// The names of what a worker reports.
const (
	actComplete = "complete"
	actFail     = "fail" // with its code
	actYield    = "yield"
	actOther    = "other"
)

func actionOf(item *servov1.ReportItem) string {
	switch a := item.GetAction().(type) {
	case *servov1.ReportItem_Complete:
		return actComplete
	case *servov1.ReportItem_Fail:
		return actFail + " " + a.Fail.GetError().GetCode()
	case *servov1.ReportItem_Yield:
		return actYield
	}
	return actOther
}

// ends reports whether an action ends its attempt.
func ends(action string) bool { return action != actOther }
