package requests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// raw sends bytes as they are: a message that no encoder would make too.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) {
	data, _ := v.(*[]byte)
	return *data, nil
}

func (raw) Unmarshal(data []byte, v any) error {
	to, _ := v.(*[]byte)
	*to = data
	return nil
}

// grpc is how a call is made over gRPC.
func (s *storm) grpc(t *testing.T) func(ctx context.Context, number int) error {
	t.Helper()
	conn, all := s.Dial(t), calls()
	return func(ctx context.Context, number int) error {
		g := s.generator(number)
		method := all[number%len(all)]
		g.wild, g.dense = []float64{0, 0.02, 0.1}[g.IntN(3)], []float64{0.05, 0.2, 0.5}[g.IntN(3)]
		message := dynamicpb.NewMessage(method.Input())
		for range 100 { // until it is one: JSON can express more than messages
			if proto.Reset(message); (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(g.message(method.Input(), nil, 0)), message) == nil {
				break
			}
		}
		data, err := proto.Marshal(message)
		if err != nil {
			data = nil
		}
		if g.chance(0.2) && len(data) > 0 {
			for range 1 + g.IntN(3) {
				data[g.IntN(len(data))] ^= 1 << g.IntN(8)
			}
		}
		var out request
		out.header = map[string][]string{}
		g.headers(&out, s.keys)
		md := metadata.MD{}
		for name, values := range out.header {
			if name == "Authorization" || name == "X-Api-Key" || name == "Idempotency-Key" || name == "Traceparent" {
				for _, v := range values {
					md.Append(name, ascii(v))
				}
			}
		}
		ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(ctx, md), patience)
		defer cancel()
		name := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
		var reply []byte
		if method.IsStreamingServer() {
			var stream grpc.ClientStream
			if stream, err = conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, name, grpc.ForceCodec(raw{})); err == nil {
				_, _ = stream.SendMsg(&data), stream.CloseSend()
				err = first(stream, cancel)
			}
		} else {
			err = conn.Invoke(ctx, name, &data, &reply, grpc.ForceCodec(raw{}))
		}
		s.count.Add(1)
		if wrong := judgeStatus(err); wrong != nil {
			return fmt.Errorf("%w\n%s\n%v\n%v\nanswer: %w", wrong, name, md, message, err)
		}
		return nil
	}
}

// first is the first answer of a stream: what comes after it may be long in coming.
func first(stream grpc.ClientStream, cancel context.CancelFunc) error {
	done := make(chan error, 1)
	go func() {
		var reply []byte
		done <- stream.RecvMsg(&reply)
	}()
	if _, err := stream.Header(); err != nil {
		return <-done
	}
	cancel()
	err := <-done
	if status.Code(err) == codes.Canceled || status.Code(err) == codes.Unknown { // or io.EOF
		return nil
	}
	return err
}

func ascii(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, text)
}

// judgeStatus returns what is wrong with the end of a call.
func judgeStatus(err error) error {
	st := status.Convert(err)
	ours := []codes.Code{codes.Internal, codes.Unknown, codes.DataLoss, codes.Unavailable, codes.DeadlineExceeded, codes.Unimplemented}
	switch {
	case st.Code() == codes.OK:
		return nil
	case slices.Contains(ours, st.Code()):
		return errors.New("the server failed")
	}
	for _, d := range st.Details() {
		if p, ok := d.(*servov1.Problem); ok && p.GetCode() != "" && p.GetMessage() != "" {
			return nil
		}
	}
	return errors.New("the status has no problem")
}
