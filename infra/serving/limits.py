"""Every time-out and bound of serving in one place, validated as an ordering before anything starts."""

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ServingLimits(BaseModel):
    """Inner clocks end before outer ones: whoever waits hears a reason from inside before it gives up itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine_s: float = Field(default=3600.0, gt=0, description="a worker's patience with its engine, for one request")
    lease_s: float = Field(default=3660.0, gt=0, description="after it, the request goes to another worker and a late answer is dropped")
    request_s: float = Field(default=7500.0, gt=0, description="the proxy's patience with a request, all attempts together")
    poll_s: float = Field(default=1.0, gt=0, le=2.0, description="how long a worker's question for work is kept open")
    silence_s: float = Field(default=10.0, gt=0, description="a worker that has leases and says nothing for so long is taken for dead")
    pending: int = Field(default=256, ge=1, description="requests that may wait; more are told to come back")
    retry_after_s: int = Field(default=5, ge=1, description="when to come back")
    drain_s: float = Field(default=25.0, gt=0, description="a leaving worker's time for what it has begun; what is left goes to others")
    start_s: float = Field(default=2400.0, gt=0, description="patience with the first answer: workers load and compile before it")
    attempts: int = Field(default=3, ge=1, description="workers that may fail with a request before it is a dead letter")

    @model_validator(mode="after")
    def _are_ordered(self) -> "ServingLimits":
        order = {name: getattr(self, name) for name in ("engine_s", "lease_s", "request_s")}
        for (inner, shorter), (outer, longer) in zip(list(order.items())[:-1], list(order.items())[1:], strict=True):
            if shorter >= longer:
                raise ValueError(f"{inner} = {shorter:g} must be less than {outer} = {longer:g}: the inner clock has to speak first")
        if self.silence_s <= 2 * self.poll_s:
            raise ValueError(f"silence_s = {self.silence_s:g} must be more than twice poll_s = {self.poll_s:g}: it speaks once a poll")
        return self
