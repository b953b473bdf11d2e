package daemon

import (
	"context"
	"fmt"
	"regexp"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

// received is a request that gRPC decodes. gRPC answers a request that its codec refuses with
// INTERNAL, before a handler or an interceptor can explain it. The codec therefore keeps the
// error here and reports success.
type received struct {
	message any
	err     error
}

// receivingCodec is gRPC's protobuf codec, with requests that explain why they are refused.
type receivingCodec struct {
	encoding.CodecV2
}

func newReceivingCodec() receivingCodec {
	return receivingCodec{encoding.GetCodecV2(proto.Name)}
}

// Unmarshal implements encoding.CodecV2.
func (c receivingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*received)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if data.Len() > maxMessageBytes {
		r.err = fault.New(problem.TooLarge, fmt.Sprintf("the request has %d bytes, more than %d", data.Len(), maxMessageBytes),
			fault.Remedy("send less at a time"), fault.Value("limit", maxMessageBytes))
	} else if err := c.CodecV2.Unmarshal(data, r.message); err != nil {
		r.err = undecodable(err)
	}
	return nil
}

// invalidText is protobuf's error about a text that is not UTF-8, with the field if it names one.
var invalidText = regexp.MustCompile(`(?:field [\w.]+\.(\w+)|string field) contains invalid UTF-8`)

func undecodable(err error) error {
	if match := invalidText.FindStringSubmatch(err.Error()); match != nil {
		return fault.New(fault.InvalidArgument, "a text is not valid UTF-8", fault.Field(match[1]), fault.Remedy("encode the text as UTF-8"), fault.Cause(err))
	}
	return fault.New(fault.InvalidArgument, "the request is not a message of this call", fault.Field("request"),
		fault.Remedy("encode it as the contract of this server's version defines it"), fault.Cause(err))
}

// receivingRegistrar registers services whose unary calls explain requests that are refused.
type receivingRegistrar struct {
	*grpc.Server
}

// RegisterService implements grpc.ServiceRegistrar.
func (r receivingRegistrar) RegisterService(desc *grpc.ServiceDesc, service any) {
	explaining := *desc
	explaining.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, method := range desc.Methods {
		handler := method.Handler
		method.Handler = func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			return handler(srv, ctx, func(m any) error {
				if err := receive(decode, m); err != nil {
					return problem.Status(err).Err()
				}
				return nil
			}, interceptor)
		}
		explaining.Methods[i] = method
	}
	r.Server.RegisterService(&explaining, service)
}

// receive decodes a message, with the error that the codec has kept.
func receive(decode func(any) error, message any) error {
	r := &received{message: message}
	if err := decode(r); err != nil {
		return err
	}
	return r.err
}

// receiving is the interceptor of streams that explain requests that are refused.
func receiving(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return handler(srv, receivingStream{stream})
}

type receivingStream struct {
	grpc.ServerStream
}

// RecvMsg implements grpc.ServerStream.
func (s receivingStream) RecvMsg(m any) error { return receive(s.ServerStream.RecvMsg, m) }
