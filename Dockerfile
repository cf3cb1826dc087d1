# The main job in a container: docker build -t rllib_llm_comm . && docker run --shm-size=512m rllib_llm_comm
# For a GPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 (docs/guides/container.md).
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

# PyTorch's own index: its builds there are for the CPU alone, or for one version of CUDA.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --index-url "${TORCH_INDEX}" "torch>=2.8,<2.14"

WORKDIR /opt/rllib_llm_comm
COPY pyproject.toml setup.cfg setup.py README.md LICENSE ./
COPY envs envs
COPY examples examples
COPY rllib_llm_comm rllib_llm_comm
COPY tuned_examples tuned_examples
RUN pip install --no-cache-dir ".[play]"

# Results and the secret that signs them stay in volumes; any user may write there (docker run --user).
WORKDIR /home/agent
COPY tuned_examples tuned_examples
RUN mkdir results state && chmod -R a+rwX /home/agent
ENV HOME=/home/agent USER=agent XDG_STATE_HOME=/home/agent/state RAY_USAGE_STATS_ENABLED=0
VOLUME ["/home/agent/results", "/home/agent/state"]
USER 1000

CMD ["rllib", "train", "file", "tuned_examples/verco.yaml"]
