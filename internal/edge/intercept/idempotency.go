package api

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/store"
)

// Replayed is the metadata of an answer that was given before, to the same idempotency key.
const Replayed = "idempotency-replayed"

// How long a call waits for the answer of another one with the same key.
const (
	twinPatience = 10 * time.Second
	twinPoll     = 100 * time.Millisecond
	twinRetry    = time.Second
)

// TakesKey reports whether a call can carry an idempotency key: all that change something, but for
// those of workers, which are known by their leases.
func TakesKey(m access.Method) bool { return m.Audited() }

// takesOwnKey says which calls see to their keys themselves: what makes runs takes the key in
// the batch that makes them, and answers a repeat with the run as it is by now.
func takesOwnKey(method string) bool {
	return slices.Contains([]string{
		servov1.RunService_TriggerRun_FullMethodName, servov1.RunService_RetryRun_FullMethodName, servov1.ConfigService_TriggerConfig_FullMethodName,
	}, method)
}

// inSteps says which calls make their effect in several transactions. Each of these can be made
// again; the answer is kept when all are done.
func inSteps(method string) bool {
	return method == servov1.SchedulerService_Tick_FullMethodName || method == servov1.AlertService_TestAlertChannel_FullMethodName
}

// once makes a call that carries an idempotency key at most once: a repeat has its answer.
func (s *Server) once(ctx context.Context, method string, req any, handler grpc.UnaryHandler) (any, error) {
	message, ok := req.(proto.Message)
	if !ok || !TakesKey(s.methods[method]) || takesOwnKey(method) {
		return handler(ctx, req)
	}
	key, err := idempotencyKey(ctx)
	if err != nil || key == "" {
		if err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
	digest, err := digestOfCall(method, callerOf(ctx).Actor, message)
	if err != nil {
		return nil, err
	}
	call := store.Call{
		Tenant: s.auditedTenant(ctx, callerOf(ctx), tenantOf(req)), Key: key, Method: strings.TrimPrefix(method, "/servo.v1."), Digest: digest,
	}
	if answer, known, err := s.replay(ctx, method, call); known || err != nil {
		return answer, err
	}
	return s.first(ctx, method, call, req, handler)
}

// first makes a call that was not answered yet.
func (s *Server) first(ctx context.Context, method string, call store.Call, req any, handler grpc.UnaryHandler) (any, error) {
	claim := s.store.Claim(call)
	defer claim.Abandon(ctx) // an error, a panic, a caller who has gone: nothing of it stays
	inside := ctx
	if !inSteps(method) {
		inside = claim.With(ctx)
	}
	answer, err := handler(inside, req)
	if err == nil {
		var kept bool
		if kept, err = s.keep(ctx, claim, answer); kept {
			claim.Done()
			return answer, nil
		}
	}
	claim.Abandon(ctx)
	if claim.Twin() {
		return s.afterTwin(ctx, method, call)
	}
	// Somebody else may have made the same call in between, and a commit whose answer was lost
	// may have been one.
	if again, known, lost := s.replay(ctx, method, call); known && lost == nil {
		claim.Done()
		return again, nil
	} else if known {
		return nil, lost
	}
	return nil, err
}

// keep writes an answer down without its secrets, together with the effect.
func (s *Server) keep(ctx context.Context, claim *store.Claim, answer any) (bool, error) {
	message, ok := answer.(proto.Message)
	if !ok {
		return false, fmt.Errorf("an answer of type %T cannot be kept", answer)
	}
	raw, err := proto.Marshal(withoutSecrets(message))
	if err != nil {
		return false, err
	}
	kept, err := claim.Keep(ctx, raw)
	return kept && err == nil, err
}

// replay answers a key that was used before. If it was for another request, nobody is told for
// which.
func (s *Server) replay(ctx context.Context, method string, call store.Call) (answer any, known bool, err error) {
	raw, same, known, err := s.store.AnsweredCall(ctx, call)
	switch {
	case err != nil || !known:
		return nil, false, err
	case !same:
		return nil, true, fault.New(fault.Conflict, "this idempotency key was used for another request", fault.Field("idempotency_key"),
			fault.Remedy("use a new key for a new request"))
	}
	message, err := answerOf(method)
	if err == nil {
		err = proto.Unmarshal(raw, message)
	}
	if err != nil {
		return nil, true, fmt.Errorf("the answer of %s that was kept cannot be read: %w", method, err)
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(Replayed, "true")) // whoever has gone reads none
	return message, true, nil
}

// afterTwin waits for the answer of a call with the same key that is at work. It holds no
// connection meanwhile.
func (s *Server) afterTwin(ctx context.Context, method string, call store.Call) (any, error) {
	over := time.NewTimer(s.patience)
	defer over.Stop()
	poll := time.NewTicker(twinPoll)
	defer poll.Stop()
	for {
		if answer, known, err := s.replay(ctx, method, call); known || err != nil {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.closing.Done():
			return nil, stopping()
		case <-over.C:
			return nil, fault.New(fault.Conflict, "a request with this idempotency key is still at work, or has just failed", fault.Field("idempotency_key"),
				fault.RetryAfter(twinRetry), fault.Remedy("repeat the request as it was, with the same key"))
		case <-poll.C:
		}
	}
}

// digestOfCall is of who asks for what: the same key of another caller is another request.
func digestOfCall(method, actor string, req proto.Message) ([]byte, error) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(method), []byte(actor), raw} {
		_, _ = sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // a hash refuses nothing
		_, _ = sum.Write(part)
	}
	return sum.Sum(nil), nil
}

// answerOf is an empty answer of a call.
func answerOf(method string) (proto.Message, error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + name))
	if err != nil {
		return nil, err
	}
	of, ok := found.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no call", method)
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(of.Output().FullName())
	if err != nil {
		return nil, err
	}
	return kind.New().Interface(), nil
}

// withoutSecrets is a copy of a message without the fields that the contract says to redact.
func withoutSecrets(message proto.Message) proto.Message {
	copied := proto.Clone(message)
	clearSecrets(copied.ProtoReflect())
	return copied
}

func clearSecrets(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case secretField(field):
			m.Clear(field)
		case field.IsMap() && field.MapValue().Message() != nil:
			value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				clearSecrets(v.Message())
				return true
			})
		case field.IsList() && field.Message() != nil:
			for i := range value.List().Len() {
				clearSecrets(value.List().Get(i).Message())
			}
		case field.Message() != nil && !field.IsMap():
			clearSecrets(value.Message())
		}
		return true
	})
}

// secretField says that a field is not to be kept or shown.
func secretField(field protoreflect.FieldDescriptor) bool {
	options, ok := field.Options().(*descriptorpb.FieldOptions)
	return ok && options.GetDebugRedact()
}
