# The scheduler with the placement policy plugin, examples/scheduler, as a static binary with nothing else.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY . .
ENV GOMODCACHE=/cache/mod GOCACHE=/cache/build
RUN --mount=type=cache,target=/cache \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags='-s -w' -o /scheduler ./examples/scheduler

FROM scratch
COPY --from=build /scheduler /scheduler
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["/scheduler"]
